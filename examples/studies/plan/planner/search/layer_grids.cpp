#include "examples/studies/plan/planner/search/layer_grids.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "comm/transport/transport.h"
#include "examples/studies/plan/planner/formulas/collective_cost.h"

namespace mpigrad::planner {
namespace {

constexpr std::size_t most_grids = 8;    // to choose from
constexpr int most_ranks_compared = 32;  // ranks compared in a redistribution
constexpr double least_gain = 0.01;      // fraction of the step

bool has_grid(const nn::LayerRecord& layer) {
  return layer.kind == "conv" || layer.kind == "conv_transpose" || layer.kind == "linear";
}

// A layer with weights, and the following layers, which run where their input is.
struct Unit {
  std::string name;
  double weight_bytes = 0;
};

LayoutPtr layout_on(const Choice& choice, const Shape& shape, int rank) {
  const auto grid = make_grid(Communicator(dry_world(rank, ranks_of(choice.grid), nullptr)), choice.grid);
  if (shape.rank() == 5) return activation_layout(grid, shape);
  return split_layout(grid, shape, {0});
}

std::vector<int> compared_ranks(int ranks) {
  std::vector<int> list;
  const int step = std::max(1, ranks / most_ranks_compared);
  for (int rank = 0; rank < ranks; rank += step) list.push_back(rank);
  if (list.back() != ranks - 1) list.push_back(ranks - 1);
  return list;
}

// The number at a name's end (-1 if none), and the text before it.
std::pair<std::string, long> numbered(const std::string& name) {
  constexpr std::size_t most_digits = 9;
  const auto at = name.find_last_not_of("0123456789") + 1;
  if (at == name.size() || name.size() - at > most_digits) return {name, -1};
  return {name.substr(0, at), std::stol(name.substr(at))};
}

// The list "conv5" to "conv7" is "conv5-7" in LayerGrid; empty result: `next` does not follow `last`.
std::string joined_names(const std::string& first, const std::string& last, const std::string& next) {
  const auto [stem, number] = numbered(last);
  const auto [other, following] = numbered(next);
  if (number < 0 || stem != other || following != number + 1) return {};
  return fmt::format("{}-{}", first, following);
}

}  // namespace

double redistribution_seconds(const Shape& shape, DType dtype, const Choice& from, const Choice& to, const Machine& machine) {
  if (extents_of(from.grid) == extents_of(to.grid)) return 0;
  const int ranks = ranks_of(from.grid);
  const auto before = layout_on(from, shape, 0), after = layout_on(to, shape, 0);
  std::int64_t most = 0;
  for (const int rank : compared_ranks(ranks)) {
    const auto have = before->box(rank), need = after->box(rank);
    most = std::max(most, need.elements() - intersection(have, need).elements());
  }
  if (most == 0) return 0;
  const auto& level = machine.levels[static_cast<std::size_t>(machine.level_between(0, ranks - 1))];
  const double bytes = static_cast<double>(most * size_of(dtype));
  return 2 * (level.latency + bytes * level.sharing / level.bandwidth);
}

LayerCosts layer_costs(const Subject& subject, const Machine& machine, const std::vector<Plan>& plans, const SearchOptions& o,
                       std::size_t most) {
  std::vector<const Plan*> grids;
  for (const auto& plan : plans)
    if (plan.fits && plan.choice.grids.empty() && plan.choice.grid.stage == 1 && !plan.choice.recompute &&
        !plan.choice.sharded_weights)
      grids.push_back(&plan);
  std::stable_sort(grids.begin(), grids.end(), [](const Plan* a, const Plan* b) { return a->seconds < b->seconds; });
  if (grids.size() > most) grids.resize(most);
  if (grids.size() < 2) return {};

  const auto whole = traced(subject, Choice{.precision = grids[0]->choice.precision}, o, 0);
  std::vector<Unit> units;
  std::vector<int> unit_of(whole.layers.size(), 0);
  for (std::size_t i = 0; i < whole.layers.size(); ++i) {
    const auto& layer = whole.layers[i];
    if (has_grid(layer)) units.push_back({layer.name});
    if (units.empty()) return {};  // something runs before the first layer with weights
    unit_of[i] = static_cast<int>(units.size()) - 1;
    units.back().weight_bytes += 4 * static_cast<double>(layer.parameters);
  }
  const auto n = grids.size();
  ChoiceCosts costs{.choices = static_cast<int>(n)};
  costs.own.assign(units.size(), std::vector<double>(n, 0));
  for (std::size_t g = 0; g < n; ++g) {
    const auto& plan = *grids[g];
    if (plan.time.layers.size() != whole.layers.size()) return {};
    for (std::size_t i = 0; i < whole.layers.size(); ++i) {
      const auto& layer = plan.time.layers[i];
      costs.own[static_cast<std::size_t>(unit_of[i])][g] += layer.forward + layer.backward + layer.communication;
    }
    // The layer's part of the cost of gradient reductions is proportional to its weights.
    const double all =
        std::accumulate(units.begin(), units.end(), 0.0, [](double sum, const Unit& unit) { return sum + unit.weight_bytes; });
    for (std::size_t u = 0; u < units.size() && all > 0; ++u)
      costs.own[u][g] += (plan.time.update + plan.time.exposed_gradients) * units[u].weight_bytes / all;
  }
  std::map<std::pair<int, int>, bool> known;
  for (const auto& edge : whole.edges) {
    if (edge.from < 0) continue;
    const int from = unit_of[static_cast<std::size_t>(edge.from)], to = unit_of[static_cast<std::size_t>(edge.to)];
    if (from == to || !known.try_emplace({from, to}, true).second) continue;
    ChoiceCosts::Edge moved{from, to, std::vector<double>(n * n)};
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b < n; ++b)
        moved.cost[a * n + b] = redistribution_seconds(edge.shape, edge.dtype, grids[a]->choice, grids[b]->choice, machine);
    costs.edges.push_back(std::move(moved));
  }
  LayerCosts result{.grids = grids, .costs = std::move(costs)};
  for (const auto& unit : units) result.layers.push_back(unit.name);
  return result;
}

std::vector<Choice> with_layer_grids(const Subject& subject, const Machine& machine, const std::vector<Plan>& plans,
                                     const SearchOptions& o) {
  const auto [layers, grids, costs] = layer_costs(subject, machine, plans, o, most_grids);
  if (layers.empty()) return {};
  const auto chosen = cheapest(costs);
  double uniform = cost_of(costs, std::vector<int>(layers.size(), 0));
  for (std::size_t g = 1; g < grids.size(); ++g)
    uniform = std::min(uniform, cost_of(costs, std::vector<int>(layers.size(), static_cast<int>(g))));
  if (chosen.cost > (1 - least_gain) * uniform) return {};

  const auto& first = grids[static_cast<std::size_t>(chosen.choice[0])]->choice;
  Choice result = first;
  for (std::size_t u = 0; u < layers.size();) {
    std::size_t end = u + 1;
    std::string names = layers[u];
    for (; end < layers.size() && chosen.choice[end] == chosen.choice[u]; ++end) {
      const auto more = joined_names(layers[u], layers[end - 1], layers[end]);
      if (more.empty()) break;
      names = more;
    }
    if (chosen.choice[u] != chosen.choice[0]) {
      const auto& own = grids[static_cast<std::size_t>(chosen.choice[u])]->choice;
      result.grids.push_back({names, own.grid, own.split});
    }
    u = end;
  }
  return {result};
}

}  // namespace mpigrad::planner
