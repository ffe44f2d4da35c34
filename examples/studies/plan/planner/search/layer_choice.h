#pragma once
// The cheapest choice for each of several layers, where a layer's cost depends on its own choice and on those of layers whose
// results it reads: sums of tables of one and of two variables, minimised exactly by eliminating one variable after the other
// (dynamic programming; Bertele and Brioschi 1972). Chains cost layers x choices^2, and skip connections a little more.

#include <cstddef>
#include <utility>
#include <vector>

namespace mpigrad::planner {

struct ChoiceCosts {
  int choices = 1;                         // of each layer
  std::vector<std::vector<double>> own{};  // by layer and choice
  struct Edge {
    int from = 0, to = 0;
    std::vector<double> cost{};  // from's choice x to's choice
  };
  std::vector<Edge> edges{};
};
struct ChosenLayers {
  std::vector<int> choice{};  // by layer
  double cost = 0;
};

double cost_of(const ChoiceCosts& costs, const std::vector<int>& choice);
// The first of those that cost least, in the order in which variables are eliminated. Errors: tables of the wrong size; a graph
// so entangled that a table would have more than 2^26 entries.
ChosenLayers cheapest(const ChoiceCosts& costs);
// The same by trying everything: the reference.
ChosenLayers cheapest_of_all(const ChoiceCosts& costs);

}  // namespace mpigrad::planner
