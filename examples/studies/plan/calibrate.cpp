// plan calibrate: measures the ranks on which it runs, and writes a machine file.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "comm/together.h"
#include "examples/studies/plan/best.h"
#include "examples/studies/plan/networks.h"
#include "examples/studies/plan/planner/machine/measure.h"
#include "examples/studies/plan/planner/machine/op_times.h"
#include "examples/studies/plan/planner/search/search.h"
#include "framework/base/joined.h"
#include "framework/cuda/cuda.h"
#include "framework/optim/optimizer.h"
#include "models/train/profile.h"
#include "models/trainer/run.h"
#include "models/trainer/tool/command_line.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/random/random.h"

namespace mpigrad::plan {
namespace {

using planner::Machine;
using tool::UsageError;

std::string today() {
  const auto time = std::time(nullptr);
  char text[16] = "";
  std::tm parts{};
  if (gmtime_r(&time, &parts)) std::strftime(text, sizeof text, "%Y-%m-%d", &parts);
  return text;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "processor";
}

void finish(const Tensor& x) {
  if (x.device() == DeviceKind::cuda) cuda::synchronise(cuda::compute_stream());
}

// The best of a few runs, on all ranks at once.
double seconds_of(const std::function<Tensor()>& f) {
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    const double start = detail::seconds_now();
    finish(f());
    if (i > 0) best = std::min(best, detail::seconds_now() - start);
  }
  return best;
}

// Peaks of a rank's device: large products, passes over large tensors, and empty ops.
planner::Device measured_device() {
  const bool gpu = current_device() == DeviceKind::cuda;
  planner::Device device{.name = gpu ? cuda::name() : processor(), .gpu = gpu};
  device.memory = gpu ? static_cast<double>(cuda::total_memory())
                      : static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  if (gpu) {
    // Large enough to fill the device, and at most a small part of its memory.
    constexpr double large = 8e9;
    const bool fills = device.memory > large;
    const std::int64_t n = fills ? 8192 : 256, many = fills ? 1 << 27 : 1 << 24;
    const auto flops = 2.0 * static_cast<double>(n * n * n);
    const auto a = random_uniform({n, n}, {1, 1}), b = random_uniform({n, n}, {1, 2});
    device.flops["float32"] = flops / seconds_of([&] { return matmul(a, b); });
    const auto c = cast(a, DType::bfloat16), d = cast(b, DType::bfloat16);
    device.flops["bfloat16"] = flops / seconds_of([&] { return matmul(c, d); });
    const auto x = random_uniform({many}, {1, 3});
    device.memory_bandwidth = 3.0 * static_cast<double>(x.bytes()) / seconds_of([&] { return x + x; });
  } else {
    const auto peaks = measure_peaks();
    device.flops["float32"] = peaks.flops, device.memory_bandwidth = peaks.bytes;
  }
  const auto small = random_uniform({8}, {1, 4});
  const int repeats = 1000;
  device.launch = seconds_of([&] {
                    Tensor y = small;
                    for (int i = 0; i < repeats; ++i) y = y + small;
                    return y;
                  }) /
                  repeats;
  // The measured rates are the peaks.
  device.efficiency = {{"conv", 1}, {"linear", 1}, {"other", 1}, {"memory", 1}};
  return device;
}

// Ops of all ranks, on rank 0.
std::vector<planner::MeasuredOp> gathered(const Communicator& world, const std::vector<planner::MeasuredOp>& own) {
  std::string text;
  for (const auto& op : own)
    text += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\n", op.op, op.in, op.out, op.flops, op.bytes, op.seconds);
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(world.size()));
  const auto length = static_cast<std::int64_t>(text.size());
  const std::vector<std::int64_t> ones(lengths.size(), 1);
  world.transport().allgather(&length, lengths.data(), ones, DType::int64);
  std::int64_t all = 0;
  for (const auto part : lengths) all += part;
  std::string whole(static_cast<std::size_t>(all), '\0');
  world.transport().gather(text.data(), whole.data(), lengths, DType::uint8, 0);
  std::vector<planner::MeasuredOp> ops;
  if (world.rank() != 0) return ops;
  std::map<std::string, std::size_t> places;
  for (std::size_t begin = 0; begin < whole.size();) {
    const auto end = whole.find('\n', begin);
    std::vector<std::string> fields;
    for (std::size_t at = begin; at <= end;) {
      const auto stop = std::min(whole.find('\t', at), end);
      fields.push_back(whole.substr(at, stop - at));
      at = stop + 1;
    }
    begin = end + 1;
    planner::MeasuredOp op{fields[0],           fields[1], fields[2], world.size(), std::stod(fields[3]), std::stod(fields[4]),
                           std::stod(fields[5])};
    const auto [place, added] = places.try_emplace(fmt::format("{}{}>{} {}", op.op, op.in, op.out, op.flops), ops.size());
    // The slowest rank counts, because the others wait for it.
    if (added) ops.push_back(op);
    else ops[place->second].seconds = std::max(ops[place->second].seconds, op.seconds);
  }
  return ops;
}

// Each layout of the network over so many ranks has different shapes.
std::vector<planner::MeasuredOp> measured_ops(const Communicator& world, const CalibrateOptions& o, const std::string& network) {
  const auto subject = subject_named(network, o.size);
  const int ranks = static_cast<int>(o.for_ranks > 0 ? o.for_ranks : world.size());
  const auto batch = o.batch > 0 ? o.batch : static_cast<std::int64_t>(world.size());
  planner::SearchOptions s{.ranks = ranks, .batch = batch};
  const double end = detail::seconds_now() + 60 * o.minutes;
  planner::OpMeasurement measurement(world, {.seconds = 0.02, .repeats = 3, .until = end});
  int done = 0;
  auto choices = planner::grids_for(subject, s);
  // Splits along samples first, as in most trainings.
  std::stable_sort(choices.begin(), choices.end(), [](const auto& a, const auto& b) { return a.grid.sample > b.grid.sample; });
  std::vector<planner::MeasuredOp> updates;
  for (const auto& choice : choices) {
    // All ranks trace the same grids: if one runs out of time, all stop.
    double late = detail::seconds_now() > end ? 1 : 0, any = 0;
    world.transport().allreduce(&late, &any, 1, DType::float64, CombineOp::max);
    if (any > 0) break;
    const auto net = subject.make(false);
    DescribeOptions options{.grid = choice.grid, .split = choice.split};
    options.optimizer = planner::adam_on(current_device() == DeviceKind::cuda);
    if (o.precision == "bfloat16") options.compute = DType::bfloat16;
    if (subject.objective) options.objective = [&](const Tensor& x) { return subject.objective(*net, x); };
    auto input = subject.input;
    input[0] = batch;
    const int rank = ranks == world.size() ? world.rank() : 0;
    const auto trace = trace_step(*net, input, options, rank, ranks, {.events = true, .timer = measurement.timer()});
    updates.push_back(planner::measure_update(world, trace.parameter_bytes / size_of(options.dtype),
                                              [](Parameters& parameters) { return std::make_unique<Adam>(parameters); }));
    ++done;
  }
  auto ops = measurement.ops();
  ops.insert(ops.end(), updates.begin(), updates.end());
  auto all = gathered(world, ops);
  if (world.rank() == 0) {
    fmt::print("{}: {} ops on the shapes of {} of {} ways to lay it over {} rank{}\n", network, all.size(), done, choices.size(),
               ranks, ranks == 1 ? "" : "s");
    for (const auto& name : measurement.left_out()) fmt::print("  not measured: {}\n", name);
    std::fflush(stdout);
  }
  return all;
}

// The line fitted to the measurements.
std::string fit_text(const planner::MeasuredCall& call) {
  const auto fit = planner::fit_link(call.points);
  return fmt::format("  {:<15}{:>9.2f} us + {:.4g} GB/s, the fit is off by {:.0f} % in the middle\n", call.call,
                     1e6 * fit.latency, fit.seconds_per_byte > 0 ? 1e-9 / fit.seconds_per_byte : 0.0, 100 * fit.residual);
}

}  // namespace

void add_calibrate(CLI::App& app, CalibrateOptions& o) {
  auto* command = app.add_subcommand(
      "calibrate", "measure the ranks on which this runs, and write a machine file: mpiexec -n 2 ... plan calibrate");
  command->add_option("--networks", o.networks, "networks whose ops are measured, with the shapes of every layout over the ranks")
      ->delimiter(',')
      ->required();
  command->add_option("--size", o.size, "extent of their volumes or images (default: each network's)")
      ->check(tool::whole_number(1, 1 << 20));
  command->add_option("--batch", o.batch, "samples in a step, on all ranks together (default: one for each rank)")
      ->check(tool::whole_number(1));
  command->add_option("--for-ranks", o.for_ranks, "ranks to plan for, whose shapes are measured (default: those of this run)")
      ->check(tool::whole_number(1, 65536));
  command->add_option("--minutes", o.minutes, "minutes for each network; layouts that remain are not measured")
      ->check(tool::number_above(0))
      ->capture_default_str();
  command->add_option("--precision", o.precision, "float32 or bfloat16")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  command->add_option("--add", o.add, "a machine file to add to: measurements of another number of ranks, or another network");
  command->add_flag("--brief", o.brief,
                    "a file of a few lines: instead of times of ops the fractions of the peaks that they reach together");
  command->add_option("--name", o.name, "name of the machine (default: its processor's)");
  command->add_option("--out", o.out, "machine file to write")->required();
  command->add_flag("--overwrite", o.overwrite, "replace it");
}

int calibrate(const Communicator& world, const CalibrateOptions& o) {
  Machine machine;
  tool::together(world, [&] {
    for (const auto& network : o.networks) (void)subject_named(network, o.size);
    if (world.rank() != 0) return;
    for (const auto& network : o.networks) {
      const auto subject = subject_named(network, o.size);
      try {
        (void)trace_step(*subject.make(false), subject.input, {}, 0, 1);
      } catch (const Error& error) {
        throw UsageError(fmt::format("{} with --size {}: {}", network, o.size, error.what()));
      }
    }
    if (!o.overwrite && std::filesystem::exists(o.out))
      throw UsageError(fmt::format("--out {} exists: choose another, or say --overwrite", o.out));
    const auto folder = std::filesystem::path(o.out).parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder))
      throw UsageError(fmt::format("--out {}: there is no folder {}", o.out, folder.string()));
    if (o.brief && !o.add.empty()) throw UsageError("--brief is for a file of its own, and --add for one with times of ops");
    if (!o.add.empty()) machine = machine_of(o.add);
  });
  const auto device = measured_device();
  auto calls = world.size() > 1 ? planner::measure_calls(world) : std::vector<planner::MeasuredCall>{};
  std::vector<planner::MeasuredOp> ops;
  for (const auto& network : o.networks) {
    const auto more = measured_ops(world, o, network);
    ops.insert(ops.end(), more.begin(), more.end());
  }
  tool::together(world, [&] {
    if (world.rank() != 0) return;
    const auto source =
        fmt::format("measured by plan calibrate, {}, {} rank{}", today(), world.size(), world.size() == 1 ? "" : "s");
    const int cores = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
    if (o.add.empty()) {
      machine.name = o.name.empty() ? device.name : o.name;
      machine.device = device;
      machine.overlaps = current_device() == DeviceKind::cuda;
      // One node: it cannot measure the network between nodes.
      machine.levels = {
          {.name = "node", .ranks = std::max(world.size(), current_device() == DeviceKind::cuda ? world.size() : cores)}};
      machine.levels[0].latency = 1e-6, machine.levels[0].bandwidth = device.memory_bandwidth / 4;
      auto folder = std::filesystem::path(o.out).parent_path();
      machine.disk = planner::measure_disk(folder.empty() ? "." : folder);
      machine.sources = {{"device", source},
                         {"device.flops", source},
                         {"device.efficiency", "1: the peaks are what was reached"},
                         {"disk", source},
                         {"level.node.ranks", "cores, or the ranks that it was measured on"},
                         {"level.node.latency", "assumed: one microsecond; calibrate on two ranks"},
                         {"level.node.bandwidth", "assumed: a quarter of the memory's; calibrate on two ranks"}};
    }
    if (!o.add.empty() && !o.name.empty()) machine.name = o.name;
    // The rank's share if ranks of a processor share memory, at the largest measured number of ranks.
    if (current_device() != DeviceKind::cuda)
      machine.device.memory = std::min(machine.device.memory, device.memory / world.size());
    for (const auto& call : calls) {
      std::erase_if(machine.calls, [&](const auto& other) { return other.call == call.call && other.ranks == call.ranks; });
      machine.calls.push_back(call);
    }
    if (!calls.empty() && (o.add.empty() || machine.levels.size() == 1)) {
      const auto fit = planner::fit_link(calls.front().points);
      machine.levels[0].latency = fit.latency, machine.levels[0].bandwidth = 1 / std::max(1e-15, fit.seconds_per_byte);
      machine.levels[0].ranks = std::max(machine.levels[0].ranks, world.size());
      machine.sources["level." + machine.levels[0].name + ".latency"] = source;
      machine.sources["level." + machine.levels[0].name + ".bandwidth"] = source;
    }
    if (o.brief) {
      for (const auto& [kind, share] : planner::reached(machine.device, ops)) machine.device.efficiency[kind] = share;
      machine.sources["device.efficiency"] =
          fmt::format("{}: ops of {}, together; of what they were not, 1, as the peaks are what was reached", source,
                      joined(o.networks, ", "));
      ops.clear();
    }
    for (const auto& op : ops) {
      std::erase_if(machine.ops, [&](const auto& other) {
        return other.op == op.op && other.in == op.in && other.out == op.out && other.flops == op.flops &&
               other.ranks == op.ranks;
      });
      machine.ops.push_back(op);
    }
    if (!machine.ops.empty() || !machine.calls.empty())
      machine.sources["measured"] = machine.sources.contains("measured") && machine.sources["measured"] != source
                                        ? machine.sources["measured"] + "; " + source
                                        : source;
    const auto text = planner::to_toml(machine);
    trainer::write_text(o.out, text);
    fmt::print("a rank: {:.4g} Gflop/s in float32, {:.4g} GB/s, {:.2f} us for an op of nothing\n",
               1e-9 * device.flops.at("float32"), 1e-9 * device.memory_bandwidth, 1e6 * device.launch);
    if (!calls.empty()) fmt::print("calls of {} ranks:\n", world.size());
    for (const auto& call : calls) fmt::print("{}", fit_text(call));
    fmt::print("written to {}\n", o.out);
  });
  return 0;
}

}  // namespace mpigrad::plan
