#include "models/trainer/run.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "framework/base/joined.h"
#include "framework/cuda/cuda.h"
#include "framework/tensor/storage.h"
#include "ops/gpu_settings.h"

namespace mpigrad::trainer {

void of_input(const Communicator& world, const std::function<void()>& f) {
  trainer::together(world, [&] {
    try {
      f();
    } catch (const UsageError&) {
      throw;
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
  });
}

std::string fingerprint(const std::vector<std::string>& names) { return fmt::format("{:016x}", tool::fingerprint(names)); }

std::string fingerprint(const data::Source& source, const std::vector<std::int64_t>& samples) {
  std::vector<std::string> names;
  for (const auto sample : samples) names.push_back(std::filesystem::path(source.name_of_sample(sample)).filename().string());
  return fingerprint(names);
}

void require_same(const Communicator& world, const std::string& what, const std::vector<std::string>& texts) {
  tool::require_same(world.transport(), texts, [&](const tool::Difference& difference) {
    const auto at = [&](const std::vector<std::string>& list) {
      return difference.place < list.size() ? fmt::format("'{}'", list[difference.place]) : std::string("nothing");
    };
    fail("[ranks] {} differ: rank 0 has {}, rank {} {}", what, at(difference.first), difference.rank, at(texts));
  });
}

void require_same_file(const Communicator& world, const std::filesystem::path& path, const CheckpointInfo& info) {
  std::error_code ignored;
  std::vector<std::string> texts{fmt::format("{} bytes", std::filesystem::file_size(path, ignored)),
                                 fmt::format("step {}", info.step), fmt::format("epoch {}", info.epoch)};
  for (const auto& [name, text] : info.notes) texts.push_back(fmt::format("{} {}", name, text));
  require_same(world, fmt::format("the ranks' files {}", path.string()), texts);
}

void require_same_data(const Communicator& world, const data::Source& source) {
  std::vector<std::string> texts{fmt::format("{} samples of {} with {} channels, {} ({})", source.size(), source.extents(),
                                             source.channels(), name_of(source.type()), data::name_of(source.transform())),
                                 fmt::format("targets {}", joined(source.target_names(), ", "))};
  // Classes are in memory; other targets would have to be read from a file for each sample.
  const bool classes = source.has_classes() && !source.target_names().empty();
  trainer::together(world, [&] {
    for (std::int64_t i = 0; i < source.size(); ++i) {
      texts.push_back(source.name_of_sample(i));
      if (classes) texts.back() += fmt::format(": {}", joined(source.targets(i), ", "));
    }
  });
  require_same(world, "the data of the ranks", texts);
}

CheckpointInfo load_weights(const std::string& path, const Communicator& world, nn::Module& net, bool averaged) {
  CheckpointInfo info;
  of_input(world, [&] { info = load_checkpoint(path, net, {.averaged = averaged}); });
  require_same_file(world, path, info);
  return info;
}

std::vector<std::string> shared_lines(const Communicator& world, const std::vector<std::string>& lines) {
  const auto text = text_of_rank(world.transport(), joined(lines, "\n"));
  std::vector<std::string> result;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    result.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

void require_batch(const Options& o, std::int64_t samples) {
  if (samples < o.batch) throw UsageError(fmt::format("--batch {} is more than the {} samples for training", o.batch, samples));
}

void save(const std::filesystem::path& path, nn::Module& net, const Communicator& world, const SaveOptions& options) {
  trainer::together(world, [&] { save_checkpoint(path, net, world, options); });
}

std::string remarks(const EpochReport& report) {
  auto text =
      fmt::format(", {:.1f} % of the time waiting for data", 100 * report.waiting_seconds / std::max(report.seconds, 1e-9));
  if (report.loss_scale != 1 || report.skipped_steps != 0)
    text += fmt::format(", loss scale {}, {} steps skipped", report.loss_scale, report.skipped_steps);
  thread_local std::int64_t told = 0;  // per thread, because a rank may be a thread
  const auto tuning = gpu_tuning();
  if (const auto all = tuning.problems + tuning.remembered; all != std::exchange(told, all))
    text += fmt::format(", kernels of {} convolutions timed in {:.1f} s (at most {:g} s each), of {} known from before",
                        tuning.problems, tuning.seconds, gpu_settings().tuning_seconds, tuning.remembered);
  return text;
}

Usage peak_usage(const Communicator& world) {
  const bool gpu = current_device() == DeviceKind::cuda;
  const auto of_gpu = gpu ? cuda::memory() : cuda::AllocatorStatistics();
  std::array<std::int64_t, 4> peaks{peak_process_bytes(), memory_statistics(current_device()).peak_bytes, of_gpu.peak,
                                    of_gpu.peak_reserved};
  world.transport().allreduce(peaks.data(), peaks.data(), peaks.size(), DType::int64, CombineOp::max);
  return {peaks[0], peaks[1], peaks[2], peaks[3], gpu ? cuda::name() : std::string()};
}

std::string to_string(const Usage& usage) {
  auto text = fmt::format("at most {} of memory per rank", readable_bytes(usage.process_bytes));
  if (!usage.gpu.empty())
    text += fmt::format(" and {} of its {} ({} taken from it)", readable_bytes(usage.gpu_bytes), usage.gpu,
                        readable_bytes(usage.gpu_reserved_bytes));
  return text;
}

void add(nlohmann::ordered_json& document, const Usage& usage) {
  document["peak_process_bytes_per_rank"] = usage.process_bytes;
  document["peak_tensor_bytes"] = usage.tensor_bytes;
  document["device"] = usage.gpu.empty() ? "cpu" : "cuda";
  if (usage.gpu.empty()) return;
  document["gpu"] = usage.gpu;
  document["peak_gpu_bytes_per_rank"] = usage.gpu_bytes;
  document["peak_gpu_reserved_bytes_per_rank"] = usage.gpu_reserved_bytes;
}

bool has_blocks(const Options& o) {
  const auto grid = parse_grid(o.grid, 1, Channels::split);
  return o.sharded_weights || !o.grid_of.empty() || grid.channel > 1 || grid.stage > 1;
}

namespace {
nn::PipelineSchedule schedule_of(const Options& o) {
  return o.pipeline == "fill_drain" ? nn::PipelineSchedule::fill_drain : nn::PipelineSchedule::one_forward_one_backward;
}
}  // namespace

void build(nn::Module& net, const LayoutPtr& layout, const Shape& shape, const Options& o) {
  nn::BuildOptions options{.seed = o.seed, .dtype = dtype_of(o), .compute = compute_of(o)};
  if (!layout || !o.onnx.empty()) return net.build(shape, options);  // ONNX has no layouts
  const auto& grid = grid_of(*layout);
  options.split = split_of(o.grid);
  options.sharded_weights = o.sharded_weights;
  if (const auto stages = Stages::of(grid))
    options.pipeline = nn::Pipeline::make(stages, {.boundaries = o.boundaries, .schedule = schedule_of(o)});
  for (const auto& own : layer_grids(o, grid.ranks()))
    options.grids.push_back({own.layers, make_grid(grid.world(), own.grid, grid.overlap()), own.split});
  net.build(layout, options);
}

nlohmann::ordered_json to_json(const GridExtents& g) {
  nlohmann::ordered_json result{{"sample", g.sample}, {"depth", g.depth}, {"height", g.height}, {"width", g.width}};
  if (g.channel > 1) result["channel"] = g.channel;
  if (g.filter > 1) result["filter"] = g.filter;
  if (g.stage > 1) result["stage"] = g.stage;
  return result;
}

nlohmann::ordered_json to_json(const Description& d) {
  const auto extents = [](const Shape& shape) { return std::vector<std::int64_t>(shape.begin(), shape.end()); };
  nlohmann::ordered_json result{{"input", extents(d.input)},
                                {"dtype", name_of(d.dtype)},
                                {"compute", name_of(d.compute)},
                                {"grid", to_json(d.grid)},
                                {"ranks", d.ranks},
                                {"batch", d.input[0]},
                                {"accumulate", d.accumulate},
                                {"parameters", d.parameters},
                                {"forward_gflop", d.forward_gflop},
                                {"backward_gflop", d.backward_gflop},
                                {"activation_bytes_per_rank", d.activation_bytes},
                                {"peak_bytes_per_rank", d.peak_bytes},
                                {"halo_bytes_per_rank", d.halo_bytes},
                                {"redistributed_bytes_per_rank", d.moved_bytes},
                                {"forward_collective_bytes_per_rank", d.collective_bytes},
                                {"sent_bytes_per_rank", d.sent_bytes},
                                {"reduced_bytes_per_rank", d.reduced_bytes},
                                {"gathered_bytes_per_rank", d.gathered_bytes},
                                {"optimizer_bytes_per_rank", d.optimizer_bytes}};
  if (!d.stages.empty()) {
    auto& stages = result["stages"] = nlohmann::ordered_json::array();
    for (const auto& stage : d.stages)
      stages.push_back({{"first_layer", stage.first},
                        {"forward_gflop", stage.gflop},
                        {"parameter_bytes_per_rank", stage.parameter_bytes},
                        {"peak_bytes_per_rank", stage.peak_bytes},
                        {"sent_bytes_per_rank", stage.sent_bytes}});
  }
  auto& layers = result["layers"] = nlohmann::ordered_json::array();
  for (const auto& layer : d.layers)
    layers.push_back({{"name", layer.name},
                      {"kind", layer.kind},
                      {"output", extents(layer.out)},
                      {"parameters", layer.parameters},
                      {"forward_gflop", layer.gflop},
                      {"activation_bytes_per_rank", layer.activation_bytes},
                      {"halo_bytes_per_rank", layer.halo_bytes},
                      {"redistributed_bytes_per_rank", layer.moved_bytes},
                      {"forward_collective_bytes_per_rank", layer.collective_bytes}});
  return result;
}

std::int64_t described_batch(const Options& o, const GridExtents& grid) {
  return o.given.contains("schedule.batch") ? o.batch : std::max(o.batch, grid.sample * o.training.fit.accumulate);
}

Description describe(const Options& o, nn::Module& net, const Shape& input, const GridExtents& grid,
                     const std::function<Tensor(const Tensor&)>& objective) {
  try {
    return mpigrad::describe(net, input,
                             {.grid = grid,
                              .split = split_of(o.grid),
                              .grids = layer_grids(o, ranks_of(grid)),
                              .sharded_weights = o.sharded_weights,
                              .boundaries = o.boundaries,
                              .schedule = schedule_of(o),
                              .dtype = dtype_of(o),
                              .compute = compute_of(o),
                              .accumulate = o.training.fit.accumulate,
                              .optimizer = [&](Parameters& parameters) { return make_optimizer(parameters, o); },
                              .objective = objective});
  } catch (const Error& error) {
    if (o.data.empty()) throw UsageError(error.what());
    throw;
  }
}

void print(const Description& description, const Options& o, const nlohmann::ordered_json& more) {
  if (!o.json) return fmt::print("{}", mpigrad::to_string(description));
  auto document = more;
  document["optimizer"] = o.optimizer;
  document.update(to_json(description));
  fmt::print("{}\n", tool::to_text(document));
}

}  // namespace mpigrad::trainer
