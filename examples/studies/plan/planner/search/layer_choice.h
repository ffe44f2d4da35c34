#pragma once
// The cheapest choice for each of several layers, if a layer's cost depends on its own choice and on the choices of the layers
// whose results it reads: a sum of tables of one and two variables, minimised exactly by eliminating one variable after the other
// (dynamic programming; Bertele and Brioschi 1972). Chains cost layers x choices^2, skip connections a little more.

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
// The first of the cheapest choices, in the order in which variables are eliminated. Errors: tables of the wrong size; a graph
// whose elimination needs a table of more than 2^26 entries.
ChosenLayers cheapest(const ChoiceCosts& costs);
// The same by exhaustive search: the reference for tests.
ChosenLayers cheapest_of_all(const ChoiceCosts& costs);

}  // namespace mpigrad::planner
