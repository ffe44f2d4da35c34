// plan best: the fastest ways to train, how they spend the time of a step, and what limits them.

#include "examples/studies/plan/best.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "examples/studies/plan/networks.h"
#include "examples/studies/plan/planner/search/search.h"
#include "framework/base/joined.h"
#include "models/nn/describe.h"
#include "models/trainer/plot/figure.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::plan {
namespace {

using Json = nlohmann::ordered_json;
using planner::Plan;
using tool::UsageError;

bool is_gpu(const planner::Machine& machine) {
  return machine.device.flops.contains("float16") || machine.device.flops.contains("bfloat16");
}

// Options for `plan simulate`.
std::string options_of(const BestOptions& o, const Plan& plan) {
  const auto& c = plan.choice;
  auto text = fmt::format("--batch {} --grid {}", o.batch, planner::grid_text(c.grid, c.split));
  for (const auto& own : c.grids)
    text += fmt::format(" --grid-of {}:{}", own.layers, planner::grid_text(own.grid, own.split.value_or(c.split)));
  if (c.precision != "float32") text += " --precision " + c.precision;
  if (c.recompute) text += " --recompute";
  if (c.sharded_weights) text += " --sharded-weights";
  return text;
}

// The sections of a recipe for this plan.
std::string recipe_of(const BestOptions& o, const Plan& plan) {
  const auto& c = plan.choice;
  auto text = fmt::format("[grid]\nextents = \"{}\"\n", planner::grid_text(c.grid, c.split));
  std::vector<std::string> layers;
  for (const auto& own : c.grids)
    layers.push_back(fmt::format("\"{}:{}\"", own.layers, planner::grid_text(own.grid, own.split.value_or(c.split))));
  if (!layers.empty()) text += fmt::format("layers = [{}]\n", joined(layers, ", "));
  if (c.sharded_weights) text += "sharded_weights = true\n";
  text += fmt::format("[schedule]\nbatch = {}\n", o.batch);
  if (c.micro_batches > 1) text += fmt::format("accumulate = {}\n", c.micro_batches);
  if (c.precision != "float32") text += fmt::format("[precision]\ncompute = \"{}\"\n", c.precision);
  if (c.recompute) text += "[network]\nrecompute = true\n";
  const auto& network = network_named(o.network);
  if (!network.extents_key.empty()) {
    const auto input = input_of(network, o.size);
    text += fmt::format("[data]\n{} = \"{},{},{}\"\n", network.extents_key, input[1], input[2], input[3]);
  }
  return text;
}

// The command for this plan; only the arguments for networks that no trainer of ours has.
std::string command_of(const BestOptions& o, const planner::Machine& machine, const Plan& plan) {
  const auto& c = plan.choice;
  const auto& network = network_named(o.network);
  auto text = fmt::format("--batch {} --grid {}", o.batch, planner::grid_text(c.grid, c.split));
  for (const auto& own : c.grids)
    text += fmt::format(" --set grid.layers={}:{}", own.layers, planner::grid_text(own.grid, own.split.value_or(c.split)));
  if (c.micro_batches > 1) text += fmt::format(" --set schedule.accumulate={}", c.micro_batches);
  if (c.precision != "float32") text += " --precision " + c.precision;
  if (c.recompute) text += " --set network.recompute";
  if (c.sharded_weights) text += " --set grid.sharded_weights";
  if (network.trainer.empty()) return text;
  if (!network.extents_key.empty()) {
    const auto input = input_of(network, o.size);
    text += fmt::format(" --set data.{}={},{},{}", network.extents_key, input[1], input[2], input[3]);
  }
  if (is_gpu(machine)) text += " --device cuda";
  return fmt::format("mpiexec -n {} build/examples/{} --data DATA {}", o.ranks, network.trainer, text);
}

// Empty for pipelines, which `plan simulate` does not have.
std::string simulation_of(const BestOptions& o, const Plan& plan) {
  if (plan.choice.grid.stage > 1) return {};
  auto text = fmt::format("build/examples/plan simulate --network {}", o.network);
  if (o.size > 0) text += fmt::format(" --size {}", o.size);
  text += fmt::format(" --machine {} {}", o.machine, options_of(o, plan));
  return o.node_ranks > 0 ? fmt::format("{} --node-ranks {}", text, o.node_ranks) : text;
}

Json to_json(const BestOptions& o, const planner::Machine& machine, const Plan& plan) {
  const auto& t = plan.time;
  auto limits = Json::array();
  for (const auto& limit : plan.limits)
    limits.push_back(
        {{"kind", name_of(limit.kind)}, {"name", limit.name}, {"value", limit.number}, {"sentence", limit.sentence}});
  return {{"choice", planner::to_string(plan.choice)},
          {"seconds_per_step", plan.seconds},
          {"samples_per_second", static_cast<double>(o.batch) / plan.seconds},
          {"efficiency", plan.efficiency},
          {"forward_s", t.forward},
          {"backward_s", t.backward},
          {"optimizer_s", t.update},
          {"halos_s", t.halos},
          {"redistribution_s", t.redistribution},
          {"collectives_s", t.collectives},
          {"hidden_communication_s", t.hidden},
          {"data_s", plan.data},
          {"checkpoints_s", plan.checkpoints},
          {"bubble", plan.bubble},
          {"folded_seconds_per_step", plan.folded},
          {"memory_bytes", plan.memory},
          {"fits", plan.fits},
          {"measured_share", t.measured_share},
          {"limits", limits},
          {"recipe", recipe_of(o, plan)},
          {"command", command_of(o, machine, plan)},
          {"simulation", simulation_of(o, plan)}};
}

// The waiting of the first plan with stages, if there is one.
std::string pipeline_of(const std::vector<Plan>& plans) {
  const auto plan = std::find_if(plans.begin(), plans.end(), [](const Plan& each) { return each.choice.grid.stage > 1; });
  if (plan == plans.end()) return {};
  auto text = fmt::format("Stages of plan {} wait for each other in {:.0f} % of the step (its bubble).", plan - plans.begin() + 1,
                          100 * plan->bubble);
  if (plan->folded > 0)
    text +=
        fmt::format(" With folded placement, which the library does not run, the step would take {:.4g} ms.", 1e3 * plan->folded);
  return text + "\n";
}

void print(const BestOptions& o, const planner::Machine& machine, const std::vector<Plan>& plans) {
  fmt::print("{} on {} ranks of {}, {} samples in a step\n\n", o.network, o.ranks, machine.name, o.batch);
  constexpr auto row = "{:>3} {:>9} {:>9} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  {}\n";
  fmt::print(row, "", "a step", "samples", "effi-", "compute", "exposed", "optimizer", "data", "check-", "memory", "");
  fmt::print(row, "", "ms", "per s", "ciency", "ms", "comm., ms", "ms", "ms", "points", "per rank", "");
  const auto ms = [](double seconds) { return fmt::format("{:.4g}", 1e3 * seconds); };
  int place = 0;
  for (const auto& plan : plans) {
    const auto& t = plan.time;
    fmt::print(row, ++place, ms(plan.seconds), fmt::format("{:.4g}", static_cast<double>(o.batch) / plan.seconds),
               fmt::format("{:.0f} %", 100 * plan.efficiency), ms(t.forward + t.backward),
               ms(t.halos + t.redistribution + t.collectives), ms(t.update), ms(plan.data), ms(plan.checkpoints),
               readable_bytes(plan.memory), planner::to_string(plan.choice) + (plan.fits ? "" : "  DOES NOT FIT"));
  }
  const auto& first = plans.front();
  if (!first.fits)
    fmt::print("\nNothing fits: the best needs {} of {} on a rank.\n", readable_bytes(first.memory),
               readable_bytes(static_cast<std::int64_t>(machine.device.memory)));
  fmt::print("\nWhat limits the first:\n");
  for (const auto& limit : first.limits) fmt::print("  {} ({}): {}\n", limit.name, name_of(limit.kind), limit.sentence);
  if (first.limits.empty()) fmt::print("  computing: no other part of the step is above a tenth\n");
  if (const auto text = pipeline_of(plans); !text.empty()) fmt::print("\n{}", text);
  if (machine.ops.empty())
    fmt::print("\nTimes of ops are from the machine's peaks: `plan calibrate` on one of its ranks measures them.\n");
  else
    fmt::print("\n{:.0f} % of the first one's work is in ops that were measured with exactly its shapes.\n",
               100 * first.time.measured_share);
  const bool trained = !network_named(o.network).trainer.empty();
  fmt::print("\n{}:\n  {}\n\nThe same in a recipe:\n{}",
             trained ? "To train so" : "No trainer of ours has this network; as options of one", command_of(o, machine, first),
             recipe_of(o, first));
  if (const auto text = simulation_of(o, first); !text.empty()) fmt::print("\nTo see all of its ranks:\n  {}\n", text);
}

planner::SearchOptions search_options(const BestOptions& o, const planner::Machine& machine) {
  planner::SearchOptions s{.ranks = static_cast<int>(o.ranks), .batch = o.batch};
  s.optimizer = planner::adam_on(machine.device.gpu);
  s.own_grids = !o.uniform, s.stages = static_cast<int>(o.stages);
  s.best = static_cast<int>(o.best), s.traced = static_cast<int>(o.candidates);
  s.sample_bytes = o.sample_bytes;
  s.checkpoint_steps = o.checkpoint_steps;
  s.node_ranks = static_cast<int>(o.node_ranks);
  const auto has = [&](const std::string& type) { return machine.device.flops.contains(type); };
  if (!o.precision.empty()) {
    if (!has(o.precision)) throw UsageError(fmt::format("--precision {}: {} has no such peak", o.precision, machine.name));
    s.precisions = {o.precision};
    return s;
  }
  if (has("tf32")) s.precisions.emplace_back("tf32");
  if (has("bfloat16")) s.precisions.emplace_back("bfloat16");
  else if (has("float16")) s.precisions.emplace_back("float16");
  return s;
}

// Time, efficiency and memory of the best plan against ranks, in powers of two, in the precision that is best for all ranks.
void draw(const BestOptions& o, const planner::Subject& subject, const planner::Machine& machine,
          const std::vector<Plan>& plans) {
  plot::Series step{.label = "predicted"}, ideal{.label = "ideal"}, efficiency{}, memory{.label = "tensors"},
      room{.label = "the rank's memory"};
  for (std::int64_t ranks = 1; ranks <= o.ranks; ranks = ranks == o.ranks ? ranks + 1 : std::min(2 * ranks, o.ranks)) {
    auto options = search_options(o, machine);
    options.precisions = {plans.front().choice.precision};
    options.ranks = static_cast<int>(ranks), options.best = 1,
    options.traced = options.traced == 0 ? 8 : std::min(options.traced, 8);
    const auto plan = ranks == o.ranks ? plans.front() : planner::search(subject, machine, options).front();
    const auto x = static_cast<double>(ranks);
    step.x.push_back(x), step.y.push_back(plan.seconds);
    ideal.x.push_back(x), ideal.y.push_back(step.y.front() / x);
    efficiency.x.push_back(x), efficiency.y.push_back(plan.efficiency);
    memory.x.push_back(x), memory.y.push_back(1e-9 * static_cast<double>(plan.memory));
    room.x.push_back(x), room.y.push_back(1e-9 * machine.device.memory);
  }
  plot::Figure figure(fmt::format("{}, {} samples in a step, on {}", o.network, o.batch, machine.name));
  figure.row(340, {plot::Lines{.title = "time of a step",
                               .x_label = "ranks",
                               .y_label = "seconds",
                               .log_x = true,
                               .log_y = true,
                               .markers = true,
                               .series = {step, ideal}},
                   plot::Lines{.title = "efficiency", .x_label = "ranks", .log_x = true, .markers = true, .series = {efficiency}},
                   plot::Lines{.title = "memory of a rank",
                               .x_label = "ranks",
                               .y_label = "GB",
                               .log_x = true,
                               .log_y = true,
                               .markers = true,
                               .series = {memory, room}}});
  figure.save(o.plot, o.overwrite);
}

}  // namespace

void add_best(CLI::App& app, BestOptions& o) {
  auto* command = app.add_subcommand("best", "the fastest ways to train that fit, and what limits them");
  command->add_option("--network", o.network, "cosmoflow, cosmoflow-mlperf, unet3d, unet3d-lbann, resnet50, vgg16, alexnet")
      ->required();
  command->add_option("--size", o.size, "extent of its volumes or images (default: the network's)")
      ->check(tool::whole_number(1, 1 << 20));
  command->add_option("--machine", o.machine, "machine file, such as examples/machines/perlmutter.toml")->required();
  command->add_option("--ranks", o.ranks, "ranks, one for each GPU or share of a processor")
      ->required()
      ->check(tool::whole_number(1, 65536));
  command->add_option("--batch", o.batch, "samples in a step, on all ranks together")
      ->required()
      ->check(tool::whole_number(1, 1'000'000'000));
  command->add_option("--precision", o.precision, "float32, tf32, bfloat16 or float16 (default: those that the machine has)")
      ->check(CLI::IsMember({"float32", "tf32", "bfloat16", "float16"}));
  command->add_option("--best", o.best, "plans to print")->check(tool::whole_number(1, 1000))->capture_default_str();
  command->add_flag("--uniform", o.uniform, "all layers on one grid");
  command->add_option("--stages", o.stages, "most stages of a pipeline; 1: no pipelines")
      ->check(tool::whole_number(1, 1000))
      ->capture_default_str();
  command->add_option("--candidates", o.candidates, "grids that are laid out op by op, after an estimate of all; 0: all of them")
      ->check(tool::whole_number(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--sample-bytes", o.sample_bytes, "bytes of a sample's file (default: its elements in float32)")
      ->check(tool::number_above(0));
  command->add_option("--checkpoint-steps", o.checkpoint_steps, "steps between checkpoints; 0: none")
      ->check(tool::whole_number(0))
      ->capture_default_str();
  command
      ->add_option("--node-ranks", o.node_ranks, "ranks of a node, of measured ops (default: of the machine's innermost level)")
      ->check(tool::whole_number(1, 65536));
  command->add_option("--plot", o.plot, "PNG of time, efficiency and memory against ranks");
  command->add_flag("--overwrite", o.overwrite, "replace the picture of an earlier run");
  command->add_flag("--json", o.json, "print one JSON document and nothing else");
}

int best(const BestOptions& o) {
  const auto subject = subject_named(o.network, o.size);
  const auto machine = machine_of(o.machine);
  if (!o.plot.empty() && !o.overwrite && std::filesystem::exists(o.plot))
    throw UsageError(fmt::format("--plot {} exists: choose another, or say --overwrite", o.plot));
  if (o.ranks > machine.ranks()) throw UsageError(fmt::format("--ranks {}: {} has {}", o.ranks, machine.name, machine.ranks()));
  const auto options = search_options(o, machine);
  if (planner::grids_for(subject, options).empty())
    throw UsageError(
        fmt::format("--ranks {}: no grid of so many ranks has a place of {} x {} for each; other numbers factor better", o.ranks,
                    o.batch, subject.input));
  std::vector<Plan> plans;
  try {
    plans = planner::search(subject, machine, options);
    if (!o.plot.empty()) draw(o, subject, machine, plans);
  } catch (const Error& error) {
    // The network does not accept this size.
    throw UsageError(error.what());
  }
  if (!o.json) {
    print(o, machine, plans);
    if (!o.plot.empty()) fmt::print("\nwritten to {}\n", o.plot);
    return 0;
  }
  auto list = Json::array();
  for (const auto& plan : plans) list.push_back(to_json(o, machine, plan));
  fmt::print("{}\n",
             tool::to_text(
                 {{"network", o.network}, {"machine", machine.name}, {"ranks", o.ranks}, {"batch", o.batch}, {"plans", list}}));
  return 0;
}

}  // namespace mpigrad::plan
