#include <algorithm>
#include <cmath>

#include "examples/studies/plan/planner/search/layer_grids.h"

namespace mpigrad::planner {

// The classes of Kahira et al., with predicted times instead of the terms of their formulas.
std::vector<Diagnosis> diagnose(const Plan& plan, const StepTrace& step, const Shape& input, const Machine& machine,
                                const SearchOptions& o) {
  using enum Diagnosis::Kind;
  std::vector<Diagnosis> found;
  const auto& time = plan.time;
  const auto& g = plan.choice.grid;
  const auto add = [&](Diagnosis::Kind kind, const char* name, double number, const std::string& sentence) {
    if (number >= reported_part) found.push_back({kind, name, number, sentence});
  };
  const auto percent = [](double part) { return fmt::format("{:.0f} %", 100 * part); };
  const auto part = [&](double seconds) { return plan.seconds > 0 ? seconds / plan.seconds : 0; };
  const double gradients = time.exposed_gradients;
  add(limitation, "gradient exchange", part(gradients),
      fmt::format("{} of the step is spent on sums of gradients over ranks", percent(part(gradients))));
  const double layer_wise = std::max(0.0, time.collectives - gradients);
  add(limitation, "layer-wise collectives", part(layer_wise),
      fmt::format("{} of the step is spent on collectives of layers: channels, statistics, weights in parts",
                  percent(part(layer_wise))));
  add(bottleneck, "point-to-point messages", part(time.halos),
      fmt::format("{} of the step is spent waiting for planes of neighbours", percent(part(time.halos))));
  add(bottleneck, "redistribution", part(time.redistribution),
      fmt::format("{} of the step is spent on moving activations between grids", percent(part(time.redistribution))));
  add(limitation, "pipeline bubble", plan.bubble,
      fmt::format("ranks wait for other stages in {} of the step, while the pipeline fills and drains or because stages differ",
                  percent(plan.bubble)));
  add(bottleneck, "input and staging", part(plan.data),
      fmt::format("{} of the step is spent waiting for {:.3g} bytes of samples", percent(part(plan.data)),
                  bytes_of_batch(input, o)));
  add(bottleneck, "checkpoints", part(plan.checkpoints),
      fmt::format("{} of the step is spent waiting for the disk to take checkpoints", percent(part(plan.checkpoints))));
  add(limitation, "weight update", part(time.update),
      fmt::format("{} of the step is spent on the optimizer", percent(part(time.update))));
  const double memory = static_cast<double>(plan.memory),
               state = static_cast<double>(step.parameter_bytes + step.optimizer_bytes);
  const int copies = ranks_of(g) / weight_parts(g) / g.stage;
  if (copies > 1 && !plan.choice.sharded_weights && memory > 0)
    add(bottleneck, "memory redundancy", state / memory,
        fmt::format("{} of a rank's memory are weights and the optimizer's state, which {} ranks have, too",
                    percent(state / memory), copies));
  const double full = machine.device.memory > 0 ? memory / machine.device.memory : 0;
  if (full >= fragmented_part)
    found.push_back({bottleneck, "memory fragmentation", full,
                     fmt::format("tensors take {} of the memory: its last parts may be in pieces", percent(full))});
  // Uneven blocks: the largest compared with the mean.
  double uneven = 1;
  const int axes[] = {g.sample, g.depth, g.height, g.width};
  for (int d = 0; d < 4; ++d) {
    const auto n = d == 0 ? o.batch : input[d];
    uneven *= static_cast<double>((n + axes[d] - 1) / axes[d]) * axes[d] / static_cast<double>(n);
  }
  add(limitation, "workload balance", uneven - 1,
      fmt::format("the largest block of the input is {} above the mean", percent(uneven - 1)));
  const double redundant = plan.efficiency > 0 ? part(time.forward + time.backward + time.update) - plan.efficiency : 0;
  add(bottleneck, "computation redundancy", redundant,
      fmt::format("{} of the step is work that a single rank would not do, or does faster: halos, small blocks, latencies of ops",
                  percent(redundant)));
  // Parts of the step and of the memory, the largest first; findings that are not parts come after them.
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.number > b.number; });
  if (ranks_of(g) >= congested_ranks && machine.levels.back().sharing > 1)
    found.push_back(
        {bottleneck, "network congestion", static_cast<double>(ranks_of(g)),
         fmt::format("from {} ranks on reductions were seen that took four times as long as expected", congested_ranks)});
  if (g.sample == o.batch && ranks_of(g) > 1)
    found.push_back({limitation, "number of ranks", static_cast<double>(o.batch),
                     fmt::format("each of the {} samples has ranks of its own: more ranks only split samples further", o.batch)});
  return found;
}

}  // namespace mpigrad::planner
