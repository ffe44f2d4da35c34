// Times a CosmoFlow training step against its floor, the bare oneDNN primitives of its layers, in the same run; and two ranks,
// each with half of the volume, against one rank with two threads. The rate of the convolutions is compared with that of a large
// product in the same precision, measured in the same run.
//
//   cosmoflow_step --size 64 128 --threads 1 2
//   cosmoflow_step --precision float32 bfloat16    each table for both; the floor is float32. With --step-only they take turns
//   cosmoflow_step --step-only --size 64 --threads 2 --precision float32 bfloat16 --losses --repeats 48    the losses of 50 steps
//   mpiexec -n 2 cosmoflow_step --step-only --grid depth=2 --size 128 --threads 1
//   mpiexec -n 2 cosmoflow_step --step-only --grid depth=2 --layers conv4-7:filter=2 linear1-2:filter=2 --size 64 --threads 1
//   ONEDNN_MAX_CPU_ISA=AVX2 cosmoflow_step      without AVX-512 in oneDNN, but with it in our own loops; see the first line

#include <fmt/format.h>
#include <omp.h>

#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "comm/launch.h"
#include "models/train/training.h"
#include "models/trainer/options.h"
#include "ops/backends/implementation.h"
#include "tests/bench/bfloat16/product.h"
#include "tests/bench/cosmoflow/cosmoflow_floor.h"
#include "tests/bench/cosmoflow/cosmoflow_training.h"

namespace mpigrad::bench {
namespace {

struct Options {
  std::vector<std::int64_t> sizes{64, 128};
  std::vector<int> threads{1, 2};
  std::vector<std::string> precisions{"float32"};
  int repeats = 9;
  bool step_only = false, instructions = false, losses = false;
  std::string grid;
  std::vector<std::string> layers;
};

// The rounds alternate between the compared cases, so that a change of the machine's speed affects all of them.
constexpr int rounds = 3;

int per_round(int repeats) { return (repeats + rounds - 1) / rounds; }

template <class F>
void warm_then(int repeats, F step) {
  step(false);
  for (int i = 0; i < per_round(repeats); ++i) step(true);
}

// Seconds of the ops of a step by layer, as in the floor; ops outside layers by name.
struct Attribution {
  std::map<std::string, FloorLayer> layers;
  std::map<std::string, double> others;
  double all = 0;
};

// Ops of one kind come in the order of the layers in the forward pass and in reverse in the backward pass.
Attribution attribute(const StepTimes& times, const Floor& floor) {
  std::map<std::string, std::vector<std::string>> names;  // "conv" -> conv1, conv2, ...
  for (const auto& layer : floor.layers)
    names[layer.name.substr(0, layer.name.find_first_of("0123456789"))].push_back(layer.name);
  std::map<std::string, std::size_t> seen;
  Attribution result;
  for (const auto& op : times.ops) {
    result.all += op.seconds;
    const auto place = [&](const std::string& kind, bool backward, double FloorLayer::*part) {
      const auto& list = names.at(kind);
      const char* pass = part == &FloorLayer::forward ? " forward" : part == &FloorLayer::data ? " data" : " weight";
      const auto i = seen[kind + pass]++;
      require(i < list.size(), "[bench] more {} than layers of kind {}", op.op, kind);
      result.layers[list[backward ? list.size() - 1 - i : i]].*part += op.seconds;
    };
    if (op.op == "conv" || op.op == "conv_bias_activation") place("conv", false, &FloorLayer::forward);
    else if (op.op == "conv_data") place("conv", true, &FloorLayer::data);
    else if (op.op == "conv_weight") place("conv", true, &FloorLayer::weight);
    else if (op.op == "avg_pool" || op.op == "leaky_avg_pool") place("pool", false, &FloorLayer::forward);
    else if (op.op == "avg_pool_adjoint" || op.op == "leaky_avg_pool_adjoint") place("pool", true, &FloorLayer::data);
    else if (op.op == "linear") place("fc", false, &FloorLayer::forward);
    else if (op.op == "matmul") place("fc", true, op.outputs[0][0] > 1 ? &FloorLayer::weight : &FloorLayer::data);
    else result.others[std::string(op.op)] += op.seconds;
  }
  return result;
}

double ms(double seconds) { return 1e3 * seconds; }

void print_row(const std::string& name, const FloorLayer& floor, const FloorLayer& ours) {
  fmt::print("{:<8}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f} |{:>9.2f}{:>9.2f}{:>9.2f} |{:>7.2f}\n", name, ms(floor.forward),
             ms(floor.data), ms(floor.weight), ms(floor.reorder), ms(ours.forward), ms(ours.data), ms(ours.weight),
             ours.total() / floor.total());
}

void print_table(std::int64_t size, int threads, const std::string& precision, const Floor& floor, const StepTimes& times,
                 double product) {
  const auto ours = attribute(times, floor);
  fmt::print("\nCosmoFlow {0}^3, batch 1, {1}, {2} thread{3}; milliseconds (medians)\n", size, precision, threads,
             threads == 1 ? "" : "s");
  fmt::print("{:<8}{:>36} |{:>27} |\n", "", "floor: bare oneDNN", "mpigrad");
  fmt::print("{:<8}{:>9}{:>9}{:>9}{:>9} |{:>9}{:>9}{:>9} |{:>7}\n", "layer", "forward", "data", "weight", "reorder", "forward",
             "data", "weight", "ratio");
  std::map<std::string, std::pair<FloorLayer, FloorLayer>> sums;
  for (const auto& layer : floor.layers) {
    const auto found = ours.layers.find(layer.name);
    const FloorLayer mine = found == ours.layers.end() ? FloorLayer{} : found->second;
    print_row(layer.name, layer, mine);
    auto& sum = sums[layer.name.substr(0, layer.name.find_first_of("0123456789"))];
    for (auto part : {&FloorLayer::forward, &FloorLayer::data, &FloorLayer::weight, &FloorLayer::reorder})
      sum.first.*part += layer.*part, sum.second.*part += mine.*part;
  }
  for (const auto& [kind, sum] : sums) print_row("all " + kind, sum.first, sum.second);
  for (const auto& [op, seconds] : ours.others)
    if (seconds > 1e-5) fmt::print("{:<45}|{:>27.2f} |\n", op, ms(seconds));
  fmt::print("{:<45}|{:>27.2f} |\n", "between ops", ms(times.forward + times.backward - ours.all));
  fmt::print("{:<8}{:>36.2f} |{:>27.2f} |{:>7.2f}\n", "Adam", ms(floor.optimizer), ms(times.optimizer),
             times.optimizer / floor.optimizer);
  fmt::print("{:<8}{:>36.2f} |{:>27.2f} |{:>7.2f}   step / floor\n", "step", ms(floor.total()), ms(times.step),
             times.step / floor.total());
  const double rate = flops_of_convolutions(times) / times.step;
  fmt::print("convolutions: {:.1f} GFLOP/s of the step, {:.3f} of a large product in {} ({:.1f})\n", 1e-9 * rate, rate / product,
             precision, 1e-9 * product);
}

void compare_with_floor(std::int64_t size, int threads, const std::string& precision, int repeats) {
  omp_set_num_threads(threads);
  run_threads(1, [&](std::shared_ptr<Transport> transport) {
    omp_set_num_threads(threads);
    const Session session(transport);
    CosmoFlowFloor floor(size);
    CosmoFlowTraining training(session, "", {}, size, precision);
    std::vector<StepTimes> steps;
    std::vector<double> rates;
    for (int round = 0; round < rounds; ++round) {
      warm_then(repeats, [&](bool count) { floor.step(count); });
      warm_then(repeats, [&](bool count) {
        auto times = training.step();
        if (count) steps.push_back(std::move(times));
      });
      rates.push_back(product_rate(precision));
    }
    print_table(size, threads, precision, floor.medians(), median_step(steps), median(rates));
  });
}

std::vector<StepTimes> steps_on_ranks(int ranks, int threads, std::int64_t size, const std::string& precision, int repeats) {
  std::vector<StepTimes> steps;
  run_threads(ranks, [&](std::shared_ptr<Transport> transport) {
    omp_set_num_threads(threads);
    const Session session(transport);
    CosmoFlowTraining training(session, fmt::format("depth={}", ranks), {}, size, precision);
    warm_then(repeats, [&](bool count) {
      auto times = training.step();
      if (count && session.rank() == 0) steps.push_back(std::move(times));
    });
  });
  return steps;
}

std::map<std::string_view, double> seconds_by_op(const StepTimes& times) {
  std::map<std::string_view, double> sums{{"optimizer", times.optimizer}};
  double all = times.optimizer;
  for (const auto& line : times.ops) sums[line.op] += line.seconds, all += line.seconds;
  sums["between ops"] = times.step - all;
  return sums;
}

void compare_ranks(std::int64_t size, int ranks, const std::string& precision, int repeats) {
  std::vector<StepTimes> one, split;
  for (int round = 0; round < rounds; ++round) {
    for (auto& times : steps_on_ranks(1, ranks, size, precision, repeats)) one.push_back(std::move(times));
    for (auto& times : steps_on_ranks(ranks, 1, size, precision, repeats)) split.push_back(std::move(times));
  }
  const auto a = median_step(one), b = median_step(split);
  fmt::print(
      "\nCosmoFlow {}^3, {}: 1 rank x {} threads {:.2f} ms; {} ranks x 1 thread, split in depth {:.2f} ms: {:.2f} times as "
      "fast\n",
      size, precision, ranks, ms(a.step), ranks, ms(b.step), a.step / b.step);
  fmt::print("{:<32}{:>12}{:>12}{:>10}\n", "milliseconds, by op", fmt::format("1 x {}", ranks), fmt::format("{} x 1", ranks),
             "share");
  const auto of_one = seconds_by_op(a), of_split = seconds_by_op(b);
  for (const auto& [op, seconds] : of_split) {
    const auto found = of_one.find(op);
    const double alone = found == of_one.end() ? 0 : found->second;
    if (std::max(seconds, alone) > 5e-5)
      fmt::print("{:<32}{:>12.2f}{:>12.2f}{:>8.1f} %\n", op, ms(alone), ms(seconds), 100 * seconds / b.step);
  }
}

// For comparisons between processes: peers, memory, MPI. Precisions take turns.
void step_only(const Session& session, const Options& o, std::int64_t size, int threads) {
  omp_set_num_threads(threads);
  struct Case {
    std::unique_ptr<CosmoFlowTraining> training;
    std::vector<double> seconds, rates, losses;
    std::vector<StepTimes> steps;
  };
  std::vector<Case> cases(o.precisions.size());
  for (std::size_t c = 0; c < cases.size(); ++c)
    cases[c].training = std::make_unique<CosmoFlowTraining>(session, o.grid, o.layers, size, o.precisions[c]);
  for (int i = -2; i < o.repeats; ++i) {
    for (auto& of : cases) {
      auto times = of.training->step();
      of.losses.push_back(times.loss);
      if (i < 0) continue;
      of.seconds.push_back(times.step);
      of.steps.push_back(std::move(times));
    }
    if (i % 3 != 0) continue;
    session.world().transport().barrier();
    for (std::size_t c = 0; c < cases.size(); ++c) cases[c].rates.push_back(product_rate(o.precisions[c]));
  }
  if (session.rank() != 0) return;
  for (std::size_t c = 0; c < cases.size(); ++c) {
    const auto& of = cases[c];
    const auto middle = median_step(of.steps);
    nlohmann::json by_op;
    for (const auto& [op, time] : seconds_by_op(middle))
      if (time > 1e-4) by_op[std::string(op)] = std::round(1e5 * time) / 1e2;
    const double step = median(of.seconds), rate = flops_of_convolutions(middle) / step, product = median(of.rates);
    const auto [fastest, slowest] = std::minmax_element(of.seconds.begin(), of.seconds.end());
    nlohmann::json line{{"size", size},
                        {"ranks", session.ranks()},
                        {"threads", threads},
                        {"precision", o.precisions[c]},
                        {"instructions", cpu::instruction_sets()},
                        {"median_s", step},
                        {"min_s", *fastest},
                        {"max_s", *slowest},
                        {"milliseconds", by_op},
                        {"gflop_per_s", 1e-9 * rate},
                        {"product_gflop_per_s", 1e-9 * product},
                        {"share_of_product", rate / product},
                        {"loss", of.losses.back()}};
    // With several trainings the process holds all their parameters at once.
    if (cases.size() == 1) line["peak_mib"] = static_cast<double>(peak_process_bytes()) / (1 << 20);
    if (o.losses) line["losses"] = of.losses;
    fmt::print("{}\n", line.dump());
  }
}

}  // namespace
}  // namespace mpigrad::bench

int main(int argc, char** argv) {
  using namespace mpigrad;
  bench::Options o;
  CLI::App app("Times a CosmoFlow training step (hybrid variant, batch 1, Adam) against the bare oneDNN primitives");
  app.add_option("--size", o.sizes, "extents of the volume, powers of two from 16")->expected(1, 8)->capture_default_str();
  app.add_option("--threads", o.threads, "OpenMP threads")->expected(1, 8)->capture_default_str();
  app.add_option("--repeats", o.repeats, "counted steps")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--precision", o.precisions, "type in which layers compute (parameters are float32); several take turns")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->expected(1, 2)
      ->capture_default_str();
  app.add_flag("--step-only", o.step_only,
               "only mpigrad's step, on the ranks of the launcher; a line of JSON for each precision");
  app.add_flag("--losses", o.losses, "with --step-only: also print the losses of all steps, the two that warm up included");
  app.add_option("--grid", o.grid, "with --step-only: the ranks' grid, such as depth=2");
  app.add_option("--layers", o.layers, "with --step-only: layers with grids of their own, such as conv4-7:filter=2")
      ->expected(1, 8);
  app.add_flag("--instructions", o.instructions, "only print the instruction sets in use");
  CLI11_PARSE(app, argc, argv);
  if (o.instructions) return fmt::print("{}\n", cpu::instruction_sets()), 0;
  if (o.step_only)
    return run(argc, argv, [&](Session& session) {
      for (const auto size : o.sizes)
        for (const int threads : o.threads) bench::step_only(session, o, size, threads);
    });
  try {
    fmt::print("{}\n", cpu::instruction_sets());
    for (const auto size : o.sizes)
      for (const int threads : o.threads)
        for (const auto& precision : o.precisions) bench::compare_with_floor(size, threads, precision, o.repeats);
    for (const auto size : o.sizes)
      for (const auto& precision : o.precisions) bench::compare_ranks(size, 2, precision, o.repeats);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
