#include "examples/studies/plan/planner/search/layer_choice.h"

#include <algorithm>
#include <limits>
#include <set>

#include "framework/base/error.h"

namespace mpigrad::planner {
namespace {

constexpr std::size_t most_entries = std::size_t{1} << 26;

// A table over the choices of some layers; the last layer's runs fastest.
struct Factor {
  std::vector<int> layers;  // ascending
  std::vector<double> cost;
};

std::size_t place_in(const Factor& factor, const std::vector<int>& choice, int choices) {
  std::size_t place = 0;
  for (const int layer : factor.layers)
    place = place * static_cast<std::size_t>(choices) + static_cast<std::size_t>(choice[static_cast<std::size_t>(layer)]);
  return place;
}

// The choice of an eliminated layer as a function of those chosen later.
struct Eliminated {
  int layer = 0;
  Factor best;  // its best choice, as a double
};

void check(const ChoiceCosts& costs) {
  const auto n = static_cast<std::size_t>(costs.choices);
  require(costs.choices >= 1, "[planner] a layer has a choice, got {}", costs.choices);
  for (const auto& own : costs.own) require(own.size() == n, "[planner] {} costs of {} choices", own.size(), n);
  const int layers = static_cast<int>(costs.own.size());
  for (const auto& edge : costs.edges)
    require(edge.from >= 0 && edge.to >= 0 && edge.from < layers && edge.to < layers && edge.from != edge.to &&
                edge.cost.size() == n * n,
            "[planner] an edge from layer {} to {} of {} with {} costs of {} choices", edge.from, edge.to, layers,
            edge.cost.size(), n);
}

}  // namespace

double cost_of(const ChoiceCosts& costs, const std::vector<int>& choice) {
  double sum = 0;
  for (std::size_t i = 0; i < costs.own.size(); ++i) sum += costs.own[i][static_cast<std::size_t>(choice[i])];
  for (const auto& edge : costs.edges)
    sum += edge.cost[static_cast<std::size_t>(choice[static_cast<std::size_t>(edge.from)] * costs.choices +
                                              choice[static_cast<std::size_t>(edge.to)])];
  return sum;
}

ChosenLayers cheapest(const ChoiceCosts& costs) {
  check(costs);
  const int layers = static_cast<int>(costs.own.size()), n = costs.choices;
  std::vector<Factor> factors;
  for (int i = 0; i < layers; ++i) factors.push_back({{i}, costs.own[static_cast<std::size_t>(i)]});
  for (const auto& edge : costs.edges) {
    Factor factor{{std::min(edge.from, edge.to), std::max(edge.from, edge.to)}, edge.cost};
    if (edge.from > edge.to)
      for (int a = 0; a < n; ++a)
        for (int b = 0; b < n; ++b)
          factor.cost[static_cast<std::size_t>(a * n + b)] = edge.cost[static_cast<std::size_t>(b * n + a)];
    factors.push_back(std::move(factor));
  }
  const auto neighbours = [&](int layer) {
    std::set<int> others;
    for (const auto& factor : factors)
      if (std::find(factor.layers.begin(), factor.layers.end(), layer) != factor.layers.end())
        others.insert(factor.layers.begin(), factor.layers.end());
    others.erase(layer);
    return others;
  };
  std::set<int> left;
  for (int i = 0; i < layers; ++i) left.insert(i);
  std::vector<Eliminated> order;
  std::vector<int> choice(static_cast<std::size_t>(layers), 0);
  while (!left.empty()) {
    // The layer with the fewest neighbours makes the smallest table.
    int next = *left.begin();
    std::size_t fewest = std::numeric_limits<std::size_t>::max();
    for (const int layer : left)
      if (const auto count = neighbours(layer).size(); count < fewest) fewest = count, next = layer;
    const auto others = neighbours(next);
    Factor result{{others.begin(), others.end()}, {}}, best = result;
    std::size_t entries = 1;
    for (std::size_t i = 0; i < others.size(); ++i) {
      entries *= static_cast<std::size_t>(n);
      require(entries <= most_entries, "[planner] {} layers read each other's results: too many to choose for together",
              others.size() + 1);
    }
    std::vector<Factor> own, rest;
    for (auto& factor : factors)
      (std::find(factor.layers.begin(), factor.layers.end(), next) != factor.layers.end() ? own : rest)
          .push_back(std::move(factor));
    result.cost.assign(entries, std::numeric_limits<double>::infinity());
    best.cost.assign(entries, 0);
    for (std::size_t entry = 0; entry < entries; ++entry) {
      auto digits = entry;
      for (auto layer = result.layers.rbegin(); layer != result.layers.rend(); ++layer)
        choice[static_cast<std::size_t>(*layer)] = static_cast<int>(digits % static_cast<std::size_t>(n)),
        digits /= static_cast<std::size_t>(n);
      for (int c = 0; c < n; ++c) {
        choice[static_cast<std::size_t>(next)] = c;
        double sum = 0;
        for (const auto& factor : own) sum += factor.cost[place_in(factor, choice, n)];
        if (sum < result.cost[entry]) result.cost[entry] = sum, best.cost[entry] = c;
      }
    }
    factors = std::move(rest);
    factors.push_back(std::move(result));
    order.push_back({next, std::move(best)});
    left.erase(next);
  }
  ChosenLayers chosen{.choice = std::vector<int>(static_cast<std::size_t>(layers), 0)};
  for (auto step = order.rbegin(); step != order.rend(); ++step)
    chosen.choice[static_cast<std::size_t>(step->layer)] =
        static_cast<int>(step->best.cost[place_in(step->best, chosen.choice, n)]);
  chosen.cost = cost_of(costs, chosen.choice);
  return chosen;
}

ChosenLayers cheapest_of_all(const ChoiceCosts& costs) {
  check(costs);
  std::vector<int> choice(costs.own.size(), 0);
  ChosenLayers best{.choice = choice, .cost = std::numeric_limits<double>::infinity()};
  while (true) {
    if (const double cost = cost_of(costs, choice); cost < best.cost) best = {choice, cost};
    std::size_t i = 0;
    while (i < choice.size() && ++choice[i] == costs.choices) choice[i++] = 0;
    if (i == choice.size()) return best;
  }
}

}  // namespace mpigrad::planner
