// Accuracy of the planner's predictions of steps on this machine: five networks, every strategy, on the ranks of this job.
//
//   mpiexec -n 1 build/tests/planner_accuracy predict --out one.csv
//   mpiexec -n 2 build/tests/planner_accuracy predict --out two.csv
//   mpiexec -n 2 build/tests/planner_accuracy measure --predictions two.csv --out measured.csv
//
// `predict` times single ops, never a whole step: at the shapes of the case (exact), and only at smaller and larger inputs
// (interpolated). `measure` runs the steps in rounds of all cases, so that a change of the machine's speed affects all cases, and
// prints the accuracy 1 - |predicted - measured| / measured.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "comm/launch.h"
#include "examples/studies/plan/networks.h"
#include "examples/studies/plan/planner/machine/measure.h"
#include "examples/studies/plan/planner/step_time.h"
#include "framework/optim/optimizer.h"
#include "models/trainer/tool/command_line.h"
#include "ops/random/random.h"

namespace mpigrad {
namespace {

struct Network {
  const char* name;
  std::int64_t size, batch;
  std::vector<std::int64_t> others;  // other sizes, which are measured to interpolate
  const char* last;                  // layers that the mixed strategy puts on a grid of samples
};
const std::vector<Network> networks{{"cosmoflow", 64, 2, {32, 128}, "conv5-7"},
                                    {"cosmoflow-mlperf", 64, 2, {32, 128}, "conv4-5"},
                                    {"unet3d", 32, 2, {24, 40}, "bottom"},
                                    {"unet3d-lbann", 32, 2, {24, 40}, "bottom"},
                                    {"resnet50", 128, 4, {96, 160}, "stage4"}};

struct Case {
  const Network* network = nullptr;
  std::string strategy;
  DescribeOptions options{};
};

std::vector<Case> cases(int ranks, const std::string& only) {
  std::vector<Case> all;
  for (const auto& network : networks) {
    if (!only.empty() && only != network.name) continue;
    const auto add = [&](const char* strategy, DescribeOptions options) {
      options.optimizer = [](Parameters& parameters) { return std::make_unique<Adam>(parameters); };
      all.push_back({&network, strategy, std::move(options)});
    };
    if (ranks == 1) {
      add("one rank", {});
      continue;
    }
    const bool image = std::string(network.name) == "resnet50";
    const GridExtents space = image ? GridExtents{.height = ranks} : GridExtents{.depth = ranks};
    add("data", {.grid = {.sample = ranks}});
    add("spatial", {.grid = space});
    add("filter", {.grid = {.channel = ranks}});
    add("channel", {.grid = {.channel = ranks}, .split = nn::LayerSplit(ChannelSplit::channels, "channel", true)});
    add("mixed", {.grid = space, .grids = {{network.last, {.sample = ranks}}}});
    add("sharded weights", {.grid = {.sample = ranks}, .sharded_weights = true});
  }
  return all;
}

Shape input_of(const Case& c, std::int64_t size) {
  auto input = plan::subject_named(c.network->name, size).input;
  input[0] = c.network->batch;
  return input;
}

StepTrace traced(const Case& c, std::int64_t size, const Communicator& world, const OpTimer& timer) {
  const auto subject = plan::subject_named(c.network->name, size);
  const auto net = subject.make(false);
  auto options = c.options;
  options.objective = [&](const Tensor& x) { return subject.objective(*net, x); };
  const auto input = input_of(c, size);
  return trace_step(*net, input, options, world.rank(), world.size(), {.events = true, .timer = timer});
}

double largest(const Communicator& world, double mine) {
  double all = 0;
  world.transport().allreduce(&mine, &all, 1, DType::float64, CombineOp::max);
  return all;
}

struct Row {
  std::string network, strategy;
  double exact = 0, interpolated = 0, memory = 0;
  planner::StepTime parts{};  // of the exact prediction, on rank 0
};

planner::Machine base_machine(const Communicator& world) {
  planner::Machine machine{.name = "here"};
  machine.device = {.name = "processor", .memory = 1e12, .memory_bandwidth = 1e10, .flops = {{"float32", 5e10}}, .launch = 2e-6};
  machine.levels = {{"node", std::max(2, world.size()), 1e-6, 5e9, 1}};
  machine.overlaps = false;
  if (world.size() > 1) machine.calls = planner::measure_calls(world);
  return machine;
}

void predict(const Communicator& world, const std::string& out, const std::string& only) {
  const auto machine = base_machine(world);
  std::vector<Row> rows;
  const auto adam = [](Parameters& parameters) { return std::make_unique<Adam>(parameters); };
  for (const auto& c : cases(world.size(), only)) {
    const planner::OpMeasurement::Options options{.seconds = 0.03, .repeats = 3};
    planner::OpMeasurement exact(world, options), near(world, options);
    const auto step = traced(c, c.network->size, world, exact.timer());
    for (const auto size : c.network->others) (void)traced(c, size, world, near.timer());
    const auto update = planner::measure_update(world, step.parameter_bytes / 4, adam);
    auto with = machine;
    with.ops = exact.ops(), with.ops.push_back(update);
    auto without = machine;
    without.ops = near.ops();
    // Excludes measurements of the case itself.
    std::erase_if(without.ops, [&](const auto& op) {
      return std::any_of(with.ops.begin(), with.ops.end(),
                         [&](const auto& own) { return own.op == op.op && own.in == op.in && own.out == op.out; });
    });
    without.ops.push_back(planner::measure_update(world, step.parameter_bytes / 8, adam));
    // Rank 0 has the times of calls.
    const auto time = [&](const planner::Machine& m) {
      return world.rank() == 0 ? planner::time_step(step, 0, m, {.node_ranks = world.size()}) : planner::StepTime();
    };
    const auto parts = time(with);
    rows.push_back({c.network->name, c.strategy, largest(world, parts.total), largest(world, time(without).total),
                    largest(world, static_cast<double>(step.peak_bytes)), parts});
    if (world.rank() == 0) {
      const auto& row = rows.back();
      fmt::print("{:<18}{:<18}{:>10.4f} s{:>10.4f} s interpolated{:>10.1f} MB\n", row.network, row.strategy, row.exact,
                 row.interpolated, 1e-6 * row.memory);
      std::fflush(stdout);
    }
  }
  if (world.rank() != 0) return;
  std::ofstream file(out);
  file << "network,strategy,ranks,exact_s,interpolated_s,memory_bytes,forward_s,backward_s,update_s,halos_s,redistribution_s,"
          "collectives_s,gradients_s\n";
  for (const auto& row : rows) {
    const auto& t = row.parts;
    file << fmt::format("{},{},{},{:.6f},{:.6f},{:.0f},{:.6f},{:.6f},{:.6f},{:.6f},{:.6f},{:.6f},{:.6f}\n", row.network,
                        row.strategy, world.size(), row.exact, row.interpolated, row.memory, t.forward, t.backward, t.update,
                        t.halos, t.redistribution, t.collectives, t.gradients);
  }
}

// Runs steps as a trainer does: adds the seconds of some to `seconds`; returns the peak of memory in bytes.
double run_steps(const Case& c, const Communicator& world, std::vector<double>& seconds) {
  constexpr int warm = 2, timed = 4;
  const auto subject = plan::subject_named(c.network->name, c.network->size);
  const auto net = subject.make(false);
  const auto input = input_of(c, c.network->size);
  const auto layout = input_layout(make_grid(world, c.options.grid), input);
  nn::BuildOptions build{.split = c.options.split, .sharded_weights = c.options.sharded_weights};
  for (const auto& own : c.options.grids) build.grids.push_back({own.layers, make_grid(world, own.grid), own.split});
  const auto before = memory_statistics(DeviceKind::cpu).current_bytes;
  net->build(layout, build);
  net->train();
  const auto optimizer = c.options.optimizer(net->parameters());
  std::int64_t peak = 0;
  for (int i = 0; i < warm + timed; ++i) {
    const auto x = constant(random_uniform(layout->box().extents(), {1, 2}, 0, 1).with_layout(layout));
    reset_peak_memory(DeviceKind::cpu);
    world.transport().barrier();
    const double start = detail::seconds_now();
    {
      Tape tape(*net);
      const auto gradients = tape.gradient(subject.objective(*net, x));
      optimizer->step(gradients);
    }
    world.transport().barrier();
    if (i >= warm) seconds.push_back(detail::seconds_now() - start);
    peak = memory_statistics(DeviceKind::cpu).peak_bytes - before;
  }
  return largest(world, static_cast<double>(peak));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<Row> read(const std::string& path, int ranks) {
  std::ifstream file(path);
  require(file.good(), "[planner_accuracy] {} cannot be read", path);
  std::vector<Row> rows;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream parts(line);
    std::vector<std::string> fields;
    for (std::string field; std::getline(parts, field, ',');) fields.push_back(field);
    if (fields.size() >= 6 && std::stoi(fields[2]) == ranks)
      rows.push_back({fields[0], fields[1], std::stod(fields[3]), std::stod(fields[4]), std::stod(fields[5])});
  }
  return rows;
}

double accuracy(double predicted, double real) { return 1 - std::abs(predicted - real) / real; }

void measure(const Communicator& world, const std::string& predictions, const std::string& out, int rounds,
             const std::string& only) {
  const auto rows = read(predictions, world.size());
  std::string table;
  double exact = 0, interpolated = 0, memory = 0, worst = 1, worst_interpolated = 1;
  std::map<std::string, std::vector<std::array<double, 3>>> by_network;
  int count = 0;
  const auto all = cases(world.size(), only);
  std::vector<std::vector<double>> steps(all.size());
  std::vector<double> peaks(all.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < all.size(); ++i) peaks[i] = run_steps(all[i], world, steps[i]);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& c = all[i];
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const Row& r) { return r.network == c.network->name && r.strategy == c.strategy; });
    require(row != rows.end(), "[planner_accuracy] {} has no {}, {}, on {} ranks", predictions, c.network->name, c.strategy,
            world.size());
    const double seconds = largest(world, median(steps[i])), bytes = peaks[i];
    const double a = accuracy(row->exact, seconds), b = accuracy(row->interpolated, seconds), m = accuracy(row->memory, bytes);
    exact += a, interpolated += b, memory += m, worst = std::min(worst, a), worst_interpolated = std::min(worst_interpolated, b),
                                                ++count;
    by_network[row->network].push_back({row->exact, row->interpolated, seconds});
    const auto text =
        fmt::format("{},{},{},{:.4f},{:.4f},{:.4f},{:.3f},{:.3f},{:.1f},{:.1f},{:.3f}\n", row->network, row->strategy,
                    world.size(), row->exact, row->interpolated, seconds, a, b, 1e-6 * row->memory, 1e-6 * bytes, m);
    table += text;
    if (world.rank() == 0) fmt::print("{}", text), std::fflush(stdout);
  }
  if (world.rank() != 0 || count == 0) return;
  int pairs = 0, right = 0, right_interpolated = 0;
  for (const auto& [name, list] : by_network)
    for (std::size_t i = 0; i < list.size(); ++i)
      for (std::size_t j = i + 1; j < list.size(); ++j) {
        if (std::max(list[i][2], list[j][2]) < 1.1 * std::min(list[i][2], list[j][2])) continue;
        ++pairs;
        right += (list[i][0] < list[j][0]) == (list[i][2] < list[j][2]);
        right_interpolated += (list[i][1] < list[j][1]) == (list[i][2] < list[j][2]);
      }
  const auto summary = fmt::format(
      "# {} cases: exact {:.3f} on average, the worst {:.3f}; interpolated {:.3f}, the worst {:.3f}; memory {:.3f}; ranking "
      "right in {} of {} "
      "pairs "
      "that differ by more than 10 % ({} interpolated)\n",
      count, exact / count, worst, interpolated / count, worst_interpolated, memory / count, right, pairs, right_interpolated);
  fmt::print("{}", summary);
  std::ofstream(out) << "network,strategy,ranks,exact_s,interpolated_s,measured_s,accuracy,accuracy_interpolated,memory_mb,"
                        "measured_mb,memory_accuracy\n"
                     << table << summary;
}

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  CLI::App app("Accuracy of the planner's predictions of steps on this machine.", "planner_accuracy");
  app.require_subcommand(1);
  std::string out, predictions, only;
  auto* predicts = app.add_subcommand("predict", "time ops one by one and write predicted times of steps");
  predicts->add_option("--out", out)->required();
  auto* measures = app.add_subcommand("measure", "run the steps and compare");
  measures->add_option("--predictions", predictions)->required();
  measures->add_option("--out", out)->required();
  std::vector<std::string> names;
  for (const auto& network : networks) names.emplace_back(network.name);
  for (auto* command : {predicts, measures})
    command->add_option("--only", only, "only this network")->check(CLI::IsMember(names));
  int rounds = 3;
  measures->add_option("--rounds", rounds, "rounds of all cases")->check(CLI::PositiveNumber)->capture_default_str();
  if (const int code = tool::parse(app, argc, argv, *transport); code >= 0) return code;
  return tool::finish(app, *transport, [&] {
    const Communicator world(transport);
    if (*predicts) predict(world, out, only);
    else measure(world, predictions, out, rounds, only);
    return 0;
  });
}

}  // namespace
}  // namespace mpigrad

int main(int argc, char** argv) {
  return mpigrad::launch(
      argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) { return mpigrad::run(transport, argc, argv); });
}
