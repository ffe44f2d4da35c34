// Times a training step of the 3D U-Net as the peers' scripts do (cross-entropy, Adam), beside the rate of a large float32
// product on the same threads in the same run: a line of JSON for each size.
//
//   unet_step --size 64 --threads 2
//   mpiexec -n 2 unet_step --grid depth=2 --size 128 --threads 1
//   unet_step --size 64 --by-layer        also seconds and FLOP/s of every op by the shape of its first output

#include <fmt/format.h>
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "comm/collectives.h"
#include "comm/launch.h"
#include "comm/transport/silent_transport.h"
#include "examples/trainer/options.h"
#include "framework/cost.h"
#include "framework/optim/optimizer.h"
#include "models/networks/unet3d.h"
#include "models/train/session.h"
#include "models/train/training.h"
#include "ops/cpu/implementation.h"
#include "ops/elementwise.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/random.h"

namespace mpigrad::bench {
namespace {

struct Options {
  std::vector<std::int64_t> sizes{64};
  int threads = 2, repeats = 5;
  std::int64_t batch = 1;
  std::string grid, variant = "mlperf";
  bool by_layer = false, recompute = false, silent = false;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// FLOP/s of a product, the fastest of three.
double product_rate() {
  constexpr std::int64_t n = 2048;
  Untaped scope;
  const auto a = random_normal({n, n}, {1, 1}), b = random_normal({n, n}, {1, 2});
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double start = now();
    (void)matmul(a, b);
    best = std::min(best, now() - start);
  }
  return 2.0 * n * n * n / best;
}

struct OfOp {
  double seconds = 0, flops = 0;
  int calls = 0;
};

void measure(const Session& session, const Options& o, std::int64_t size) {
  const auto& world = session.world();
  const auto ranks = o.silent ? Communicator(silent_transport(world.transport().duplicate())) : world;
  const auto grid = make_grid(ranks, trainer::parse_grid(o.grid, session.ranks()));
  const auto layout = activation_layout(grid, {o.batch, size, size, size, 1});
  const auto labels_layout = split_layout(grid, {o.batch, size, size, size}, {0, 1, 2, 3});
  UNet3d net({.variant = o.variant == "mlperf" ? UNet3dVariant::mlperf : UNet3dVariant::lbann, .recompute = o.recompute});
  net.build(layout, {.seed = 1});
  Adam adam(net, {.learning_rate = 1e-4});
  const auto x = constant(random_normal(layout->global, {1, 2}, 0, 1, DType::float32, layout));
  const auto y = constant(cast(random_uniform(labels_layout->global, {1, 3}, 0, 3, DType::float32, labels_layout), DType::uint8));
  std::vector<double> seconds, rates;
  std::map<std::string, OfOp> ops;
  double flops = 0, value = 0;
  std::int64_t kept = 0;
  for (int i = -2; i < o.repeats; ++i) {
    CostLog log;
    const double start = now();
    {
      Tape tape(net);
      const auto loss = cross_entropy(net(x), y);
      kept = memory_statistics(DeviceKind::cpu).current_bytes;
      adam.step(tape.gradient(loss));
      value = total(loss, session.world());
    }
    const double end = now();
    if (i < 0) continue;
    seconds.push_back(end - start);
    flops = 0;
    for (const auto& line : log.lines) {
      auto& op = ops[o.by_layer ? fmt::format("{} {}", line.op, line.outputs.empty() ? Shape{} : line.outputs[0])
                                : std::string(line.op)];
      op.seconds += line.seconds / o.repeats, op.flops += line.flops / o.repeats, ++op.calls;
      if (line.op.starts_with("conv")) flops += line.flops;
    }
    rates.push_back(product_rate());
  }
  if (session.rank() != 0) return;
  const double step = median(seconds), product = median(rates);
  nlohmann::ordered_json by_op;
  std::vector<std::pair<std::string, OfOp>> sorted(ops.begin(), ops.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  for (const auto& [name, op] : sorted) {
    if (op.seconds < 0.002 * step) continue;
    by_op[name] = fmt::format("{:.1f} ms, {:.0f} GFLOP/s", 1e3 * op.seconds, 1e-9 * op.flops / op.seconds);
  }
  fmt::print("{}\n", nlohmann::ordered_json{{"variant", o.variant},
                                            {"size", size},
                                            {"batch", o.batch},
                                            {"ranks", session.ranks()},
                                            {"communication", o.silent ? "none" : "on"},
                                            {"threads", o.threads},
                                            {"instructions", cpu::instruction_sets()},
                                            {"median_s", step},
                                            {"min_s", *std::min_element(seconds.begin(), seconds.end())},
                                            {"gflop_of_convolutions", 1e-9 * flops},
                                            {"gflop_per_s", 1e-9 * flops / step},
                                            {"product_gflop_per_s", 1e-9 * product},
                                            {"share_of_product", flops / step / product},
                                            {"forward_mib", static_cast<double>(kept) / (1 << 20)},
                                            {"tensors_peak_mib",
                                             static_cast<double>(memory_statistics(DeviceKind::cpu).peak_bytes) / (1 << 20)},
                                            {"peak_mib", static_cast<double>(peak_process_bytes()) / (1 << 20)},
                                            {"loss", value},
                                            {"ops", by_op}}
                         .dump(o.by_layer ? 1 : -1));
}

}  // namespace
}  // namespace mpigrad::bench

int main(int argc, char** argv) {
  using namespace mpigrad;
  bench::Options o;
  CLI::App app("Times a training step of the 3D U-Net (float32, cross-entropy, Adam) beside a large product");
  app.add_option("--size", o.sizes, "extents of the volume")->expected(1, 8)->capture_default_str();
  app.add_option("--batch", o.batch, "samples")->capture_default_str();
  app.add_option("--threads", o.threads, "OpenMP threads of each rank")->capture_default_str();
  app.add_option("--repeats", o.repeats, "steps that count")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--grid", o.grid, "how the ranks split the volume, such as depth=2");
  app.add_flag("--silent", o.silent, "ranks exchange nothing: what is left of the time is the bound of what overlap can reach");
  app.add_option("--variant", o.variant, "mlperf or lbann")->check(CLI::IsMember({"mlperf", "lbann"}))->capture_default_str();
  app.add_flag("--recompute", o.recompute, "computes each block again in the replay");
  app.add_flag("--by-layer", o.by_layer, "ops by the shape of what they make");
  CLI11_PARSE(app, argc, argv);
  return run(argc, argv, [&](Session& session) {
    omp_set_num_threads(o.threads);
    for (const auto size : o.sizes) bench::measure(session, o, size);
  });
}
