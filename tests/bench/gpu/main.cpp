// Times training steps of CosmoFlow and the 3D U-Net on a GPU: compares step and memory with a peer's, and every convolution with
// bare calls of cuDNN, in one run. Prints Markdown tables.
//
//   gpu_step --size 128 256 --batch 1 2 4 8 --precision tf32 bfloat16 --peer "python3 torch_step.py"
//   gpu_step --network unet3d --size 128 --batch 1 2 --precision bfloat16 --peer "python3 torch_step.py"
//   gpu_step --network unet3d --size 128 --batch 2 --by-op          times of the ops of the step
//   mpiexec -n 2 gpu_step --size 512 --batch 1 --no-layers          two GPUs, each with half of the volume

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <map>

#include "comm/launch.h"
#include "framework/base/error.h"
#include "framework/cuda/cuda.h"
#include "ops/gpu_settings.h"
#include "tests/bench/gpu/layers.h"
#include "tests/bench/gpu/step.h"

namespace mpigrad::bench {
namespace {

struct Options {
  std::vector<std::int64_t> sizes{128, 256}, batches{1, 2, 4, 8};
  std::vector<std::string> precisions{"tf32", "bfloat16"};
  std::string network = "cosmoflow", peer;
  int steps = 10, soak = 0;
  std::int64_t workspace = -1;
  bool no_layers = false, layers_only = false, by_op = false, no_autotune = false, halo = false;
};

double ms(double seconds) { return 1e3 * seconds; }

DType type_of(const std::string& precision) { return precision == "bfloat16" ? DType::bfloat16 : DType::float32; }

void print_layers(const StepProblem& problem) {
  const auto network = problem.network;
  const bool unet = network == StepNetwork::unet3d, mlperf = network == StepNetwork::cosmoflow_mlperf;
  const auto layers =
      unet ? convolutions_of_unet(problem.width, problem.batch)
           : convolutions_of(mlperf ? CosmoFlowVariant::mlperf : CosmoFlowVariant::hybrid, problem.width, problem.batch);
  fmt::print("\nConvolutions of {} {}^3, batch {}, {}; milliseconds: cuDNN's fastest bare call, ours, ratio\n\n",
             unet     ? "the 3D U-Net"
             : mlperf ? "MLPerf's CosmoFlow"
                      : "the hybrid CosmoFlow",
             problem.width, problem.batch, problem.precision);
  fmt::print(
      "| layer | forward | ours | ratio | with LeakyReLU | data | ours | ratio | weight | ours | ratio |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n");
  const auto print = [](const std::string& name, const ConvTimes& t) {
    fmt::print("| {} |", name);
    for (const auto* pass : {&t.forward, &t.data, &t.weight}) {
      if (pass->ours == 0) fmt::print(" | | |");
      else fmt::print(" {:.3f} | {:.3f} | {:.2f} |", ms(pass->bare), ms(pass->ours), pass->ours / pass->bare);
      if (pass == &t.forward) fmt::print(" {:.3f} |", ms(pass->activation));
    }
    fmt::print("\n");
    std::fflush(stdout);
  };
  ConvTimes all;
  for (const auto& layer : layers) {
    ConvTimes times;
    try {
      times = time_layer(layer, type_of(problem.precision));
    } catch (const Error& error) {
      fmt::print("| {} | {} |\n", layer.name, error.what());
      continue;
    }
    print(layer.name, times);
    for (auto pass : {&ConvTimes::forward, &ConvTimes::data, &ConvTimes::weight}) {
      (all.*pass).bare += (times.*pass).bare, (all.*pass).ours += (times.*pass).ours;
      (all.*pass).activation += (times.*pass).activation;
    }
  }
  print("all", all);
  fmt::print("\nall convolutions: {:.3f} ms bare, {:.3f} ms ours, ratio {:.3f}\n", ms(all.bare()), ms(all.ours()),
             all.ours() / all.bare());
  fmt::print("measured: convolutions{}-{}-{}-{} {:.3f} times cuDNN's bare calls\n", unet ? "-unet3d" : "", problem.width,
             problem.batch, problem.precision, all.ours() / all.bare());
}

// The ops of the step, compared with the limits of memory and arithmetic.
void print_ops(const Session& session, const Options& o, const StepProblem& problem) {
  const auto times = time_ops(session, problem, o.steps);
  double all = 0;
  for (const auto& t : times) all += t.seconds;
  fmt::print("\nOps of {} {}^3, batch {}, {}; bytes: each operand once\n\n", o.network, problem.width, problem.batch,
             problem.precision);
  fmt::print("| op | operands | calls | ms | of all | GB/s | TFLOP/s |\n|---|---|--:|--:|--:|--:|--:|\n");
  for (const auto& t : times)
    if (t.seconds > 0.001 * all)
      fmt::print("| {} | {} | {} | {:.3f} | {:.1f} % | {:.0f} | {:.1f} |\n", t.op, t.operands, t.calls, ms(t.seconds),
                 100 * t.seconds / all, 1e-9 * t.bytes / t.seconds, 1e-12 * t.flops / t.seconds);
  fmt::print("\nall: {:.3f} ms\n\n", ms(all));
  std::map<std::string, std::array<double, 4>> of_name;
  for (const auto& t : times) {
    auto& sum = of_name[t.op];
    sum[0] += t.calls, sum[1] += t.seconds, sum[2] += t.bytes, sum[3] += t.flops;
  }
  fmt::print("| op | calls | ms | GB/s | TFLOP/s |\n|---|--:|--:|--:|--:|\n");
  for (const auto& [name, sum] : of_name)
    if (sum[1] > 0.002 * all)
      fmt::print("| {} | {:.0f} | {:.3f} | {:.0f} | {:.1f} |\n", name, sum[0], ms(sum[1]), 1e-9 * sum[2] / sum[1],
                 1e-12 * sum[3] / sum[1]);
  std::fflush(stdout);
}

const char* name_in_report(StepNetwork network) {
  return network == StepNetwork::unet3d              ? "-unet3d"
         : network == StepNetwork::cosmoflow_mlperf  ? "-mlperf"
         : network == StepNetwork::cosmoflow_pyramid ? "-pyramid"
                                                     : "";
}

// One row; a configuration that does not fit, or a failed peer, prints the reason, and the other rows continue. Adds `measured`
// lines for the report of tests/gpu.sh.
void print_row(const Session& session, const Options& o, const StepProblem& problem, std::vector<std::string>& measured) {
  const bool speaks = session.rank() == 0;
  if (speaks) fmt::print("| {} | {} | {} |", problem.width, problem.batch, problem.precision);
  StepResult ours, graph;
  try {
    ours = time_step(session, problem, o.steps);
  } catch (const Error& error) {
    if (session.ranks() > 1) throw;  // the others wait for this rank
    fmt::print(" {} |\n", error.what());
    return;
  }
  try {
    auto captured = problem;
    captured.graph = true;
    graph = time_step(session, captured, o.steps);
  } catch (const Error& error) {
    if (session.ranks() > 1) throw;
    graph.not_captured = error.what();
  }
  if (!speaks) return;
  fmt::print(" {:.2f} ({:.2f} to {:.2f}) | {:.0f} | {:.0f} | {:.0f} | {:.0f} | {:.1f} |", ms(ours.median), ms(ours.fastest),
             ms(ours.slowest), ours.peak_mib, ours.step_mib, ours.predicted_mib, ours.peak_reserved_mib, ours.waits);
  const bool captured = graph.not_captured.empty();
  if (captured) fmt::print(" {:.2f} |", ms(graph.median));
  else fmt::print(" {} |", graph.not_captured);
  const double seconds = captured ? std::min(ours.median, graph.median) : ours.median;
  const double samples = static_cast<double>(problem.batch) / seconds;
  fmt::print(" {:.1f} | {:.2f} |", samples, 1e-12 * ours.flops / seconds);
  const auto note = [&](const char* what, const std::string& value) {
    measured.push_back(fmt::format("measured: {}{}-{}-{}-{} {}", what, name_in_report(problem.network), problem.width,
                                   problem.batch, problem.precision, value));
  };
  note("samples", fmt::format("{:.1f} samples/s", samples));
  note("memory", fmt::format("{:.0f} MiB, {:.0f} in a step, predicted {:.0f}", ours.peak_mib, ours.step_mib, ours.predicted_mib));
  if (!o.peer.empty() && session.ranks() == 1) {
    std::optional<StepResult> best;
    for (const bool compiled : {false, true}) {
      try {
        const auto peer = time_peer(o.peer, problem, o.steps, compiled);
        if (!peer) {
          fmt::print(" |");
          continue;
        }
        fmt::print(" {:.2f}, {:.0f} MiB |", ms(peer->median), peer->peak_mib);
        if (!best || peer->median < best->median) best = peer;
      } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        fmt::print(" failed |");
      }
    }
    if (best) {
      fmt::print(" {:.2f} | {:.2f} |", best->median / seconds, ours.peak_mib / best->peak_mib);
      note("beside-peer",
           fmt::format("{:.2f} times as fast, {:.2f} of the memory", best->median / seconds, ours.peak_mib / best->peak_mib));
    }
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void print_steps(const Session& session, const Options& o, const std::vector<StepProblem>& problems) {
  if (session.rank() == 0) {
    fmt::print(
        "Training steps of {} on {} rank{}, convolutions {}; milliseconds: median (fastest to slowest); rates are of "
        "the faster of ordinary and captured steps\n\n",
        o.network, session.ranks(), session.ranks() == 1 ? "" : "s", o.no_autotune ? "by heuristics" : "timed once");
    fmt::print(
        "| size | batch | precision | mpigrad | MiB in use | of a step | predicted | MiB held | host waits | as a graph | "
        "samples/s | TFLOP/s |");
    if (!o.peer.empty()) fmt::print(" peer | peer, compiled | times as fast as the faster | memory ratio |");
    fmt::print("\n|---|---|---|---|---|---|---|---|---|---|---|---|{}\n", o.peer.empty() ? "" : "---|---|---|---|");
  }
  std::vector<std::string> measured;
  for (const auto& problem : problems) print_row(session, o, problem, measured);
  for (const auto& line : measured) fmt::print("{}\n", line);
}

void bench(const Session& session, const Options& o) {
  require(cuda::available(), "[bench] {}", cuda::unavailable());
  auto settings = gpu_settings();
  settings.autotune = !o.no_autotune;
  if (o.workspace >= 0) settings.workspace = o.workspace << 20;
  set_gpu_settings(settings);
  const auto network = o.network == "unet3d"              ? StepNetwork::unet3d
                       : o.network == "cosmoflow-mlperf"  ? StepNetwork::cosmoflow_mlperf
                       : o.network == "cosmoflow-pyramid" ? StepNetwork::cosmoflow_pyramid
                                                          : StepNetwork::cosmoflow;
  std::vector<StepProblem> problems;
  for (const auto size : o.sizes)
    for (const auto batch : o.batches)
      for (const auto& precision : o.precisions) problems.push_back({network, size, batch, precision});
  if (o.soak > 0) {
    const StepProblem problem{network, o.sizes.front(), *std::max_element(o.batches.begin(), o.batches.end()),
                              o.precisions.front()};
    const auto lines = soak(session, problem, o.batches, o.soak);
    if (session.rank() == 0)
      fmt::print(
          "Steps of {} {}^3, {}, batches in turn\n\n| steps | MiB in use | most held | of the host | loss "
          "|\n|--:|--:|--:|--:|--:|\n",
          o.network, problem.width, problem.precision);
    if (session.rank() == 0)
      for (const auto& l : lines)
        fmt::print("| {} | {:.1f} | {:.0f} | {:.0f} | {:.4f} |\n", l.steps, l.mib, l.reserved_mib, l.process_mib, l.loss);
    return;
  }
  if (o.by_op) {
    for (const auto& problem : problems) print_ops(session, o, problem);
    return;
  }
  if (!o.layers_only) print_steps(session, o, problems);
  if (o.halo && session.ranks() > 1) {
    const double rate = halo_rate(session, o.sizes.front(), type_of(o.precisions.front()));
    if (session.rank() == 0)
      fmt::print("measured: halo-{}-{} {:.1f} GB/s to rank 0\n", o.sizes.front(), session.ranks(), 1e-9 * rate);
  }
  if (o.no_layers || session.ranks() > 1) return;
  for (const auto& problem : problems) {
    auto exact = gpu_settings();
    exact.tf32 = problem.precision != "float32";
    set_gpu_settings(exact);
    print_layers(problem);
  }
}

}  // namespace
}  // namespace mpigrad::bench

int main(int argc, char** argv) {
  using namespace mpigrad;
  bench::Options o;
  CLI::App app("Times training steps of CosmoFlow or the 3D U-Net, cuDNN's bare convolutions and a peer on a GPU");
  app.add_option("--size", o.sizes, "extents of the volume, powers of two")->expected(1, 8)->capture_default_str();
  app.add_option("--batch", o.batches, "samples of a step")->expected(1, 8)->capture_default_str();
  app.add_option("--precision", o.precisions, "float32, tf32, bfloat16")
      ->expected(1, 3)
      ->check(CLI::IsMember({"float32", "tf32", "bfloat16"}))
      ->capture_default_str();
  app.add_option("--network", o.network, "network to time")
      ->check(CLI::IsMember({"cosmoflow", "cosmoflow-mlperf", "cosmoflow-pyramid", "unet3d"}))
      ->capture_default_str();
  app.add_option("--steps", o.steps, "counted steps, after three others")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--peer", o.peer, "command that times PyTorch's step: takes --model --size --batch --dtype --compile ...");
  app.add_option("--workspace", o.workspace, "largest scratch memory of cuDNN's kernels, MiB")->check(CLI::NonNegativeNumber);
  app.add_option("--soak", o.soak, "number of steps with the batches in turn: compares memory after each tenth")
      ->check(CLI::PositiveNumber);
  app.add_flag("--halo", o.halo, "also the rate of planes of 32 channels from neighbours, on two or more ranks");
  app.add_flag("--no-layers", o.no_layers, "only whole steps");
  app.add_flag("--layers-only", o.layers_only, "only the convolutions")->excludes("--no-layers");
  app.add_flag("--by-op", o.by_op, "only what each op of a step takes")->excludes("--layers-only")->excludes("--peer");
  app.add_flag("--no-autotune", o.no_autotune, "take cuDNN's first proposals instead of timing several once");
  // Parses this program's options first; the rest selects ranks and device.
  app.allow_extras();
  CLI11_PARSE(app, argc, argv);
  return run(argc, argv, [&](Session& session) { bench::bench(session, o); });
}
