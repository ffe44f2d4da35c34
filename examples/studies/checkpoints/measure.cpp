#include "examples/studies/checkpoints/measure.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>

#include "comm/together.h"
#include "examples/tools/elastic/job.h"
#include "examples/tools/weights/npz.h"
#include "framework/base/fnv.h"
#include "framework/base/new_file.h"
#include "framework/optim/optimizer.h"
#include "models/data/compressed/compressed.h"
#include "models/networks/cosmoflow.h"
#include "models/networks/resnet.h"
#include "models/networks/unet3d.h"
#include "models/train/checkpoint/checkpoint.h"
#include "models/train/restart/checkpoint_saver.h"
#include "models/train/restart/local_copies.h"
#include "models/trainer/tool/quantile.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"

namespace mpigrad::study {
namespace {

namespace fs = std::filesystem;
constexpr double none = std::numeric_limits<double>::quiet_NaN();

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Network {
  std::unique_ptr<nn::Module> net;
  Shape input;
};

Network make(const std::string& name, bool tiny) {
  if (name == "cosmoflow") {
    const std::int64_t side = tiny ? 16 : 64;
    return {std::make_unique<CosmoFlow>(CosmoFlowOptions{.batch_norm = true, .filters = tiny ? 2 : 0}), {1, side, side, side, 4}};
  }
  if (name == "unet3d") {
    UNet3dOptions options;
    if (tiny) options.filters = {4, 8, 8};
    const std::int64_t side = tiny ? 16 : 64;
    return {std::make_unique<UNet3d>(options), {1, side, side, side, 1}};
  }
  return {std::make_unique<ResNet>(ResNetOptions{.depth = tiny ? 10 : 50, .classes = tiny ? 10 : 1000, .width = tiny ? 4 : 64}),
          {1, 1, tiny ? 32 : 224, tiny ? 32 : 224, 3}};
}

// A network with an optimizer. Sharded: each rank has a part of the weights.
struct State {
  State(const std::string& name, const Communicator& world, bool tiny, bool sharded) : made(make(name, tiny)) {
    auto& net = *made.net;
    const auto grid = make_grid(world, {.sample = world.size()});
    auto input = made.input;
    input[0] = world.size();
    layout = activation_layout(grid, input);
    net.build(layout, {.seed = 1, .sharded_weights = sharded});
    adam.emplace(net, AdamAttributes{});
  }
  void step() {
    const auto x = constant(random_normal(layout->global, {.key = 2}, 0, 1, DType::float32, layout));
    Tape tape(*made.net);
    adam->step(tape.gradient(mean(square((*made.net)(x)))));
  }
  SaveOptions options() { return {.optimizer = &*adam, .info = {.step = 1}}; }
  // Of weights, statistics of norms and the optimizer's state.
  std::string hash() const {
    auto all = fnv_start;
    const auto add = [&](const Tensor& value) {
      const auto own = value.device() == DeviceKind::cuda ? detail::copied(value, DeviceKind::cpu) : value;
      all = fnv1a(all, {reinterpret_cast<const char*>(own.raw()), static_cast<std::size_t>(own.bytes())});
    };
    for (std::size_t i = 0; i < made.net->parameters().size(); ++i) add(made.net->parameters()[i].value);
    for (const auto& [name, value] : made.net->all_buffers()) add(value);
    for (const auto& [name, value] : adam->state()) add(value);
    return fmt::format("{:016x}", all);
  }

  Network made;
  LayoutPtr layout;
  std::optional<Adam> adam;
};

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

double bytes_in(const fs::path& folder) {
  double bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += static_cast<double>(entry.file_size());
  return bytes;
}

data::Bytes read_all(const fs::path& path) {
  data::Bytes bytes(fs::file_size(path));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  require(file.good(), "[study] {} cannot be read", path.string());
  return bytes;
}
void write_all(const fs::path& path, const data::Bytes& bytes) { GrowingFile(path, O_WRONLY | O_TRUNC, "study").write(bytes); }

class FileStream final : public data::ByteStream {
 public:
  explicit FileStream(const fs::path& path) : file_(path, std::ios::binary), left_(static_cast<double>(fs::file_size(path))) {}
  std::size_t read(std::byte* to, std::size_t count) override {
    file_.read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(count));
    const auto got = static_cast<std::size_t>(file_.gcount());
    left_ -= static_cast<double>(got);
    return got;
  }
  double most_left() const override { return left_; }

 private:
  std::ifstream file_;
  double left_;
};
// Unpacks without writing: the additional cost of reading a packed file.
void unpack(const fs::path& path) {
  const auto plain = data::gunzip(std::make_unique<FileStream>(path), path.string());
  data::Bytes part(1 << 20);
  while (plain->read(part.data(), part.size()) == part.size()) {
  }
}

class Measurement {
 public:
  Measurement(const Communicator& world, const Options& o, const std::string& network, bool oversubscribed)
      : world_(world), o_(o), network_(network), oversubscribed_(oversubscribed),
        folder_(o.folder / fmt::format("{}-{}", network, world.size())) {}

  std::vector<Row> run() {
    const bool first = world_.rank() == 0;
    State state(network_, world_, o_.tiny, false);
    state.step();
    auto& net = *state.made.net;
    const auto file = folder_ / newest_checkpoint;
    const auto load = [&] { (void)load_checkpoint(file, net, {.optimizer = &*state.adam}); };
    add(
        rank_0_writes, [&] { return save_checkpoint(file, net, world_, state.options()), 0.0; }, load);
    {
      std::optional<CheckpointSaver> saver(world_);
      saver->reserve(net, state.options());
      add(
          training_goes_on,
          [&] {
            const double start = now();
            saver->stage(file, net, state.options());
            const double still = now() - start;
            saver->finish();
            return still;
          },
          load);
    }
    if (world_.size() > 1) {
      // On the disks of two nodes; on one node its own copy, and a copy of another rank's.
      const auto disk = [&](int rank) { return folder_ / fmt::format("disk{}", rank); };
      together(world_, [&] {
        if (first) fs::remove(file);  // no old copies
      });
      LocalCopies copies(world_, disk(world_.rank()), {"checkpoint study", folder_ / "training-name"},
                         {.partners = {world_.size() - 1}});
      CheckpointSaver saver(world_);
      saver.reserve(net, state.options());
      add(
          local_copies,
          [&] {
            const double start = now();
            saver.stage(copies.file(0), net, state.options(), {}, [&] { copies.replicate(0); });
            const double still = now() - start;
            saver.finish();
            return still;
          },
          [&] { (void)load_checkpoint(disk(0) / newest_checkpoint, net, {.optimizer = &*state.adam}); }, true);
    }
    a_file_per_rank(net);
    if (world_.size() > 1) {
      State parts(network_, world_, o_.tiny, true);
      parts.step();
      add(
          every_rank_its_part, [&] { return save_checkpoint(file, *parts.made.net, world_, parts.options()), 0.0; },
          [&] { (void)load_checkpoint(file, *parts.made.net, {.optimizer = &*parts.adam}); });
    }
    formats(net);
    if (world_.transport().in_one_process()) {
      const auto command =
          fmt::format("{} --transport threads --ranks {} --restart {} --networks {} {} {}",
                      quoted(fs::read_symlink("/proc/self/exe").string()), world_.size(), quoted(fs::absolute(file).string()),
                      network_, o_.tiny ? "--tiny" : "", current_device() == DeviceKind::cuda ? "--device cuda" : "");
      std::vector<std::string> hashes;
      add(
          restart, [&] { return save_checkpoint(file, net, world_, state.options()), 0.0; },
          [&] {
            if (first) hashes.push_back(elastic::output_of(command));
          });
      together(world_, [&] {
        for (const auto& hash : hashes)
          require(hash.size() == 17 && hash.find_first_not_of("0123456789abcdef\n") == std::string::npos,
                  "[study] the new process has failed: {}: {}", command, hash);
      });
      state.step();
      const auto expected = state.hash() + "\n";
      const auto same = [&](const std::string& hash) { return hash == expected; };
      if (first) rows_.back().same_bits = std::all_of(hashes.begin(), hashes.end(), same) ? "yes" : "no";
    }
    if (first) fs::remove_all(folder_);
    return std::move(rows_);
  }

 private:
  // `save` returns how long training stops, 0: the whole time. Sizes are those of the folder afterwards.
  void add(const std::string& way, const std::function<double()>& save, const std::function<void()>& load, bool keeps = false) {
    auto& transport = world_.transport();
    Row row{.network = network_, .way = way, .ranks = world_.size(), .oversubscribed = oversubscribed_};
    std::vector<double> saves, stills, loads;
    for (int round = 0; round < o_.rounds; ++round) {
      together(world_, [&] {
        if (world_.rank() != 0) return;
        if (!keeps) fs::remove_all(folder_);
        fs::create_directories(folder_);
      });
      const auto slowest = [&](double seconds) {
        transport.allreduce(&seconds, &seconds, 1, DType::float64, CombineOp::max);
        return seconds;
      };
      transport.barrier();
      double start = now();
      const double still = slowest(save());
      saves.push_back(slowest(now() - start));
      stills.push_back(still > 0 ? still : saves.back());
      if (world_.rank() == 0) row.bytes = bytes_in(folder_);
      transport.barrier();
      if (!load) continue;
      start = now();
      load();
      loads.push_back(slowest(now() - start));
    }
    row.save = tool::median(saves), row.still = tool::median(stills), row.load = tool::median(loads);
    if (world_.rank() == 0) rows_.push_back(row);
  }

  // The weights only; each rank writes some of the tensors.
  void a_file_per_rank(nn::Module& net) {
    CheckpointTensors mine;
    for (std::size_t i = 0; i < net.parameters().size(); ++i)
      if (static_cast<int>(i) % world_.size() == world_.rank())
        mine.tensors.push_back({"parameters/" + net.parameters()[i].name, net.parameters()[i].value});
    const auto file = folder_ / fmt::format("rank{}.h5", world_.rank());
    add(
        file_per_rank, [&] { return write_weights(file, mine, false, true), 0.0; }, [&] { (void)read_weights(file); });
  }

  // Rank 0 writes the weights; packed ones are packed as a whole by gzip.
  void formats(nn::Module& net) {
    weights::TensorFile all;
    CheckpointTensors hdf5;
    for (std::size_t i = 0; i < net.parameters().size(); ++i) {
      all.tensors.push_back({net.parameters()[i].name, net.parameters()[i].value});
      hdf5.tensors.push_back({"parameters/" + net.parameters()[i].name, net.parameters()[i].value});
    }
    struct Format {
      const char* name;
      std::function<void(const fs::path&)> write, read;
    };
    std::vector<Format> formats{{"HDF5", [&](const fs::path& path) { write_weights(path, hdf5, false, true); },
                                 [](const fs::path& path) { (void)read_weights(path); }},
                                {"safetensors", [&](const fs::path& path) { weights::write_safetensors(path, all, true); },
                                 [](const fs::path& path) { (void)weights::read_safetensors(path); }}};
    if (data::zip_available())
      formats.push_back({"npz", [&](const fs::path& path) { weights::write_npz(path, all, true); },
                         [](const fs::path& path) { (void)weights::read_npz(path); }});
    const bool first = world_.rank() == 0;
    for (const auto& format : formats) {
      const auto path = folder_ / fmt::format("weights.{}", format.name), packed = fs::path(path.string() + ".gz");
      add(
          fmt::format("weights: {}", format.name), [&] { return first ? format.write(path) : void(), 0.0; },
          [&] {
            if (first) format.read(path);
          });
      if (!data::gzip_available()) continue;
      add(
          fmt::format("weights: {}, gzip", format.name),
          [&] {
            if (!first) return 0.0;
            format.write(path);
            write_all(packed, data::gzip(read_all(path)));
            fs::remove(path);
            return 0.0;
          },
          [&] {
            if (first) unpack(packed);
          });
    }
  }

  const Communicator& world_;
  const Options& o_;
  std::string network_;
  bool oversubscribed_;
  fs::path folder_;
  std::vector<Row> rows_;
};

// Steps with sums in the order of ranks, compared with the library's own order: the cost of `--deterministic` and
// MPIGRAD_REDUCTIONS=fixed.
Row determinism(const Communicator& world, const Options& o, const std::string& network, bool oversubscribed) {
  Row row{.network = network,
          .way = "a step, sums in any order | in the order of ranks",
          .ranks = world.size(),
          .oversubscribed = oversubscribed,
          .bytes = none};
  const auto time = [&](const Communicator& comm) {
    State state(network, comm, o.tiny, false);
    state.step();
    std::vector<double> times;
    for (int i = 0; i < 2 * o.rounds + 1; ++i) {
      comm.transport().barrier();
      const double start = now();
      state.step();
      comm.transport().barrier();
      times.push_back(now() - start);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  };
  row.save = time(world);
  row.load = time(world.with({.fixed_order = true}));
  row.still = none;
  return row;
}

}  // namespace

std::string restart_from(const fs::path& file, const std::string& network, const Communicator& world, bool tiny) {
  State state(network, world, tiny, false);
  (void)load_checkpoint(file, *state.made.net, {.optimizer = &*state.adam});
  state.step();
  return state.hash();
}

std::vector<Row> measure(const Communicator& world, const Options& options, int cores) {
  std::vector<Row> rows;
  const bool oversubscribed = world.size() > cores;
  for (const auto& network : options.networks) {
    const auto more = Measurement(world, options, network, oversubscribed).run();
    rows.insert(rows.end(), more.begin(), more.end());
    const auto steps = determinism(world, options, network, oversubscribed);
    if (world.rank() == 0) rows.push_back(steps);
  }
  return rows;
}

}  // namespace mpigrad::study
