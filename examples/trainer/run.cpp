#include "examples/trainer/run.h"

#include <cstdio>

#include "comm/hdf5/io_thread.h"
#include "framework/storage.h"

namespace mpigrad::trainer {

void together(const Communicator& world, const std::function<void()>& f) {
  std::string error;
  bool failed = false;
  std::int64_t usage = 0;
  try {
    f();
  } catch (const UsageError& exception) {
    error = exception.what();
    failed = true, usage = 1;
  } catch (const std::exception& exception) {
    error = exception.what();
    failed = true;
  }
  auto& transport = world.transport();
  std::int64_t first = failed ? world.rank() : world.size();
  transport.allreduce(&first, &first, 1, DType::int64, Reduction::min);
  if (first == world.size()) return;
  const int root = static_cast<int>(first);
  auto length = static_cast<std::int64_t>(error.size());
  transport.broadcast(&length, 1, DType::int64, root);
  transport.broadcast(&usage, 1, DType::int64, root);
  error.resize(static_cast<std::size_t>(length));
  transport.broadcast(error.data(), length, DType::uint8, root);
  if (usage != 0) throw UsageError(error);
  throw SharedError(error);
}

int finish(const CLI::App& app, const Communicator& world, const std::function<int()>& f) {
  // Reads ahead that nobody needs any more must end before the process takes HDF5 down.
  struct Drain {
    ~Drain() {
      IoThread::instance().run([] {});
    }
  } drain;
  try {
    return f();
  } catch (const UsageError& error) {
    return usage_error(app, error.what(), world.rank());
  } catch (const SharedError& error) {
    if (world.rank() == 0) fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

Outputs::Outputs(const Communicator& world, const std::filesystem::path& folder, const std::vector<std::string>& files,
                 bool overwrite)
    : folder_(folder) {
  together(world, [&] {
    if (world.rank() != 0) return;
    std::error_code error;
    for (const auto& file : files)
      require(overwrite || !std::filesystem::exists(folder / file, error), "[out] {} exists; --overwrite replaces it",
              (folder / file).string());
  });
}

void Outputs::create(const Communicator& world) const {
  together(world, [&] {
    if (world.rank() != 0) return;
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    require(std::filesystem::is_directory(folder_), "[out] the folder {} cannot be made: {}", folder_.string(), error.message());
  });
}

std::int64_t start_from_files(const Options& o, const Communicator& world, nn::Module& net, Optimizer& optimizer,
                              const std::map<std::string, std::string>& notes) {
  if (o.weights.empty() && o.resume.empty()) return 0;
  CheckpointInfo info;
  together(world, [&] {
    info = o.resume.empty() ? load_checkpoint(o.weights, net) : load_checkpoint(o.resume, net, {.optimizer = &optimizer});
    require(o.resume.empty() || info.epoch < o.epochs, "[resume] {} has {} epochs behind it; --epochs {} asks for no more",
            o.resume, info.epoch, o.epochs);
  });
  if (o.resume.empty()) return 0;
  for (const auto& [name, text] : notes) {
    const auto before = info.notes.find(name);
    if (world.rank() == 0 && before != info.notes.end() && before->second != text)
      fmt::print(stderr, "warning: {} was trained with {} {}, now it is {}\n", o.resume, name, before->second, text);
  }
  return info.epoch;
}

Usage peak_usage(const Communicator& world) {
  std::array<std::int64_t, 2> peaks{peak_process_bytes(), memory_statistics(DeviceKind::cpu).peak_bytes};
  world.transport().allreduce(peaks.data(), peaks.data(), 2, DType::int64, Reduction::max);
  return {peaks[0], peaks[1]};
}

nlohmann::ordered_json to_json(const GridExtents& g) {
  return {{"sample", g.sample}, {"depth", g.depth}, {"height", g.height}, {"width", g.width}};
}

nlohmann::ordered_json to_json(const Description& d) {
  const auto extents = [](const Shape& shape) { return std::vector<std::int64_t>(shape.begin(), shape.end()); };
  nlohmann::ordered_json result{{"input", extents(d.input)},
                                {"dtype", name_of(d.dtype)},
                                {"grid", to_json(d.grid)},
                                {"ranks", d.ranks},
                                {"parameters", d.parameters},
                                {"forward_gflop", d.forward_gflop},
                                {"backward_gflop", d.backward_gflop},
                                {"activation_bytes_per_rank", d.activation_bytes},
                                {"peak_bytes_per_rank", d.peak_bytes},
                                {"halo_bytes_per_rank", d.halo_bytes},
                                {"sent_bytes_per_rank", d.sent_bytes}};
  auto& layers = result["layers"] = nlohmann::ordered_json::array();
  for (const auto& layer : d.layers)
    layers.push_back({{"name", layer.name},
                      {"kind", layer.kind},
                      {"output", extents(layer.out)},
                      {"parameters", layer.parameters},
                      {"forward_gflop", layer.gflop},
                      {"activation_bytes_per_rank", layer.activation_bytes},
                      {"halo_bytes_per_rank", layer.halo_bytes}});
  return result;
}

Description describe(const Options& o, nn::Module& net, const Shape& input, const GridExtents& grid) {
  try {
    return mpigrad::describe(net, input, {.grid = grid, .dtype = dtype_of(o)});
  } catch (const Error& error) {
    if (o.data.empty()) throw UsageError(error.what());
    throw;
  }
}

void print(const Description& description, bool json, const nlohmann::ordered_json& more) {
  if (!json) return fmt::print("{}", mpigrad::to_string(description));
  auto document = more;
  document.update(to_json(description));
  fmt::print("{}\n", document.dump(2));
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  require(file != nullptr, "[out] {} cannot be written", path.string());
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  require((std::fclose(file) == 0) && written, "[out] {} could not be written completely", path.string());
}

}  // namespace mpigrad::trainer
