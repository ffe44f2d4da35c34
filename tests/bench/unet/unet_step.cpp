// Times a training step of the 3D U-Net like the peers' scripts (cross-entropy, Adam), and the rate of a large product in the
// same precision on the same threads in the same run: lines of JSON for each size. Compared cases take turns.
//
//   unet_step --size 64 --threads 2
//   mpiexec -n 2 unet_step --grid depth=2 --size 128 --threads 1
//   unet_step --size 64 --floor           also the bare primitives of its layers (tests/bench/unet/unet_floor.h)
//   unet_step --precision float32 bfloat16        one line for each precision
//   unet_step --precision float32 bfloat16 --losses --warm-up 1 --repeats 49      the losses of 50 steps
//   mpiexec -n 2 unet_step --grid depth=2 --communication on none --threads 1
//   MPIGRAD_TRANSPORT=threads MPIGRAD_RANKS=2 unet_step --grid depth=2 --threads 1
//   unet_step --profile-cost              the cost of the profile of models/train/profile.h
//   unet_step --size 64 --by-layer        also seconds and FLOP/s of every op by the shape of its first output

#include <fmt/format.h>
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "comm/collectives/collectives.h"
#include "comm/launch.h"
#include "framework/engine/cost.h"
#include "framework/optim/loss_scale.h"
#include "framework/optim/optimizer.h"
#include "models/networks/unet3d.h"
#include "models/train/profile.h"
#include "models/train/session.h"
#include "models/train/training.h"
#include "models/trainer/options.h"
#include "models/trainer/ranks/silent_transport.h"
#include "ops/backends/implementation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/random/random.h"
#include "tests/bench/bfloat16/product.h"
#include "tests/bench/unet/unet_floor.h"

namespace mpigrad::bench {
namespace {

struct Options {
  std::vector<std::int64_t> sizes{64};
  int threads = 2, repeats = 5, warm_up = 2;
  std::int64_t batch = 1, depth = 0;
  std::string grid, variant = "mlperf";
  std::vector<std::string> communications{"on"}, precisions{"float32"};
  bool by_layer = false, recompute = false, floor = false, profile_cost = false, losses = false;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct OfOp {
  double seconds = 0, flops = 0;
  int calls = 0;
};

// A network with its data, in training.
class Training {
 public:
  Training(const Session& session, const Options& o, std::int64_t size, const std::string& communication,
           const std::string& precision)
      : communication(communication), precision(precision), world_(session.world()), net_(options(o)) {
    const auto depth = o.depth == 0 ? size : o.depth;
    const auto silence = communication == "waiting" ? Silence::waiting : Silence::nothing;
    const auto ranks = communication == "on" ? world_ : Communicator(silent_transport(world_.transport().duplicate(), silence));
    const auto grid = make_grid(ranks, trainer::parse_grid(o.grid, session.ranks()));
    const auto layout = activation_layout(grid, {o.batch, depth, size, size, 1});
    const auto labels = split_layout(grid, {o.batch, depth, size, size}, {0, 1, 2, 3});
    trainer::Options computing;
    computing.precision = precision;
    net_.build(layout, {.seed = 1, .compute = trainer::compute_of(computing)});
    adam_ = std::make_unique<Adam>(net_, AdamAttributes{.learning_rate = 1e-4});
    loss_scale_ = trainer::make_loss_scale(computing, ranks);
    x_ = constant(random_normal(layout->global, {1, 2}, 0, 1, DType::float32, layout));
    y_ = constant(cast(random_uniform(labels->global, {1, 3}, 0, 3, DType::float32, labels), DType::uint8));
  }

  // Returns the seconds of a step, from the moment when all ranks have arrived.
  double step() {
    world_.transport().barrier();
    const double start = now();
    {
      Tape tape(net_);
      const auto share = cross_entropy(cast(net_(x_), net_.dtype()), y_);
      kept_bytes = memory_statistics(DeviceKind::cpu).current_bytes;
      if (loss_scale_) {
        const auto gradients = tape.gradient(share * loss_scale_->value());
        if (const auto taken = loss_scale_->unscaled(gradients)) adam_->step(gradients, {.scale = taken->scale});
      } else {
        adam_->step(tape.gradient(share));
      }
      losses.push_back(total(share, world_));
    }
    return now() - start;
  }

  static UNet3dOptions options(const Options& o) {
    return {.variant = o.variant == "mlperf" ? UNet3dVariant::mlperf : UNet3dVariant::lbann, .recompute = o.recompute};
  }

  const std::string communication, precision;
  std::vector<double> losses;   // of all steps
  std::int64_t kept_bytes = 0;  // after the forward pass

 private:
  Communicator world_;
  UNet3d net_;
  std::unique_ptr<Adam> adam_;
  std::unique_ptr<LossScale> loss_scale_;
  Tensor x_, y_;
};

nlohmann::ordered_json described(const Session& session, const Options& o, std::int64_t size, const Training& training) {
  return {{"variant", o.variant},
          {"size", size},
          {"depth", o.depth == 0 ? size : o.depth},
          {"batch", o.batch},
          {"ranks", session.ranks()},
          {"grid", o.grid},
          {"transport", session.world().transport().name()},
          {"communication", training.communication},
          {"precision", training.precision},
          {"threads", o.threads},
          {"instructions", cpu::instruction_sets()}};
}

struct Measured {
  std::vector<double> seconds;
  std::map<std::string, OfOp> ops;
  double flops = 0;  // of the convolutions in one step
};

// Steps of all trainings, of the floor and the product take turns, so that a change of the machine's speed affects all of them.
void measure(const Session& session, const Options& o, std::int64_t size) {
  std::vector<std::unique_ptr<Training>> trainings;
  for (const auto& communication : o.communications)
    for (const auto& precision : o.precisions)
      trainings.push_back(std::make_unique<Training>(session, o, size, communication, precision));
  for (int i = 0; i < o.warm_up; ++i)
    for (const auto& training : trainings) training->step();
  // Before the floor is built, whose memory does not belong to a network.
  const auto mib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const double tensors_peak = mib(memory_statistics(DeviceKind::cpu).peak_bytes), peak = mib(peak_process_bytes());
  std::unique_ptr<UNetFloor> floor;
  if (o.floor) {
    UNet3d net(Training::options(o));
    floor = std::make_unique<UNetFloor>(net, Shape{o.batch, o.depth == 0 ? size : o.depth, size, size, 1});
    floor->step(false);
  }
  std::vector<Measured> measured(trainings.size());
  std::map<std::string, std::vector<double>> rates;  // of a product, by precision
  for (int i = 0; i < o.repeats; ++i) {
    for (std::size_t t = 0; t < trainings.size(); ++t) {
      auto& of = measured[t];
      CostLog log;
      of.seconds.push_back(trainings[t]->step());
      of.flops = 0;
      for (const auto& line : log.lines) {
        auto& op = of.ops[o.by_layer ? fmt::format("{} {}", line.op, line.outputs.empty() ? Shape{} : line.outputs[0])
                                     : std::string(line.op)];
        op.seconds += line.seconds / o.repeats, op.flops += line.flops / o.repeats, ++op.calls;
        if (line.op.starts_with("conv")) of.flops += line.flops;
      }
    }
    if (floor) floor->step(true);
    for (const auto& precision : o.precisions) rates[precision].push_back(product_rate(precision));
  }
  if (session.rank() != 0) return;
  for (std::size_t t = 0; t < trainings.size(); ++t) {
    const auto& of = measured[t];
    const double step = median(of.seconds), product = median(rates[trainings[t]->precision]);
    auto line = described(session, o, size, *trainings[t]);
    line.update({{"median_s", step},
                 {"min_s", *std::min_element(of.seconds.begin(), of.seconds.end())},
                 {"gflop_of_convolutions", 1e-9 * of.flops},
                 {"gflop_per_s", 1e-9 * of.flops / step},
                 {"product_gflop_per_s", 1e-9 * product},
                 {"share_of_product", of.flops / step / product}});
    if (floor) {
      line["floor_s"] = floor->median();
      line["of_floor"] = step / floor->median();
      for (const auto& [kind, seconds] : floor->medians_by_kind()) line["floor_ms"][kind] = std::round(1e4 * seconds) / 10;
    }
    // With several trainings the process holds all their parameters at once.
    if (trainings.size() == 1)
      line.update({{"forward_mib", mib(trainings[t]->kept_bytes)}, {"tensors_peak_mib", tensors_peak}, {"peak_mib", peak}});
    line["loss"] = trainings[t]->losses.back();
    if (o.losses) line["losses"] = trainings[t]->losses;
    std::vector<std::pair<std::string, OfOp>> sorted(of.ops.begin(), of.ops.end());
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    for (const auto& [name, op] : sorted) {
      if (op.seconds < 0.002 * step) continue;
      line["ops"][name] = fmt::format("{:.1f} ms, {:.0f} GFLOP/s", 1e3 * op.seconds, 1e-9 * op.flops / op.seconds);
    }
    fmt::print("{}\n", line.dump(o.by_layer ? 1 : -1));
  }
}

// Steps with and without models/train/profile.h take turns, and so does the order of the two.
void measure_profile(const Session& session, const Options& o, std::int64_t size, const std::string& precision) {
  Training training(session, o, size, o.communications[0], precision);
  for (int i = 0; i < o.warm_up; ++i) training.step();
  StepProfile profile(session.world(), {.first_step = 0, .steps = o.repeats});
  std::vector<double> without, with, ratios;
  const auto profiled = [&] {
    const double start = now();
    profile.begin_step();
    training.step();
    profile.end_step();
    with.push_back(now() - start);
  };
  for (int i = 0; i < o.repeats; ++i) {
    if (i % 2 == 1) profiled();
    without.push_back(training.step());
    if (i % 2 == 0) profiled();
    ratios.push_back(with.back() / without.back());
  }
  if (session.rank() != 0) return;
  auto line = described(session, o, size, training);
  line.update({{"without_profile_s", median(without)},
               {"with_profile_s", median(with)},
               {"profile_cost", median(ratios)},
               {"asked", "profile_cost below 1.02"}});
  fmt::print("{}\n", line.dump());
}

}  // namespace
}  // namespace mpigrad::bench

int main(int argc, char** argv) {
  using namespace mpigrad;
  bench::Options o;
  CLI::App app("Times a training step of the 3D U-Net (cross-entropy, Adam) and a large product");
  app.add_option("--size", o.sizes, "extents of the volume")->expected(1, 8)->capture_default_str();
  app.add_option("--depth", o.depth, "extent along depth, if it differs");
  app.add_option("--batch", o.batch, "samples")->capture_default_str();
  app.add_option("--threads", o.threads, "OpenMP threads of each rank")->capture_default_str();
  app.add_option("--repeats", o.repeats, "counted steps")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--warm-up", o.warm_up, "steps before the counted ones")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--grid", o.grid, "how the ranks split the volume, such as depth=2");
  app.add_option(
         "--communication", o.communications,
         "on, or none: ranks exchange nothing, and the remaining time is the lower bound for overlap, or waiting: ranks wait for "
         "each other as usual, but exchange nothing; several take turns")
      ->check(CLI::IsMember({"on", "waiting", "none"}))
      ->expected(1, 3)
      ->capture_default_str();
  app.add_option("--precision", o.precisions, "type in which layers compute (parameters are float32); several take turns")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}))
      ->expected(1, 3)
      ->capture_default_str();
  app.add_option("--variant", o.variant, "mlperf or lbann")->check(CLI::IsMember({"mlperf", "lbann"}))->capture_default_str();
  app.add_flag("--recompute", o.recompute, "compute each block again in the replay");
  auto* floor = app.add_flag("--floor", o.floor, "also time the bare primitives of its layers, always in float32, on one rank");
  app.add_flag("--profile-cost", o.profile_cost, "only compare steps with and without a profile")->excludes(floor);
  app.add_flag("--losses", o.losses, "also print the losses of all steps");
  app.add_flag("--by-layer", o.by_layer, "also time ops by the shape of their first output");
  CLI11_PARSE(app, argc, argv);
  return run(argc, argv, [&](Session& session) {
    require(!o.floor || session.ranks() == 1, "[unet_step] --floor is for one rank, there are {}", session.ranks());
    omp_set_num_threads(o.threads);
    for (const auto size : o.sizes)
      if (!o.profile_cost) bench::measure(session, o, size);
      else
        for (const auto& precision : o.precisions) bench::measure_profile(session, o, size, precision);
  });
}
