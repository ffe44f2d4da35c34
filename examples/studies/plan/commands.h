#pragma once
// The commands of the program `plan` that only calculate. Each adds itself to the program as a subcommand and runs on the options
// read. Both throw tool::UsageError for invalid input.

#include <cstdint>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace mpigrad::plan {

// plan cost: an epoch by the formulas of examples/studies/plan/planner/formulas/oracle.h.
struct CostOptions {
  std::string strategy, network, layers, times;  // the last three: names or files
  std::string groups;                            // "P1xP2"
  std::optional<double> weight_bytes{};
  std::int64_t ranks = 1, samples = 1, batch = 1;
  std::int64_t segments = 0;        // of a pipeline; 0: as many as ranks, at most the samples in a batch
  std::int64_t size = 0;            // of a network by name; 0: the network's own
  double alpha = 0, bandwidth = 1;  // seconds; bytes per second
  // For data+spatial: links inside a group, and there for halos and gathers; the number of split layers, 0: as many as possible.
  std::optional<double> group_alpha{}, group_bandwidth{}, halo_alpha{}, halo_bandwidth{};
  std::int64_t spatial_layers = 0;
  bool json = false;
};
void add_cost(CLI::App& app, CostOptions& options);
int cost(const CostOptions& options);

// plan integrated: grids of model, batch and domain parallelism by the equations of
// examples/studies/plan/planner/formulas/integrated.h.
struct IntegratedOptions {
  std::string network, convolutions = "batch";  // batch, same or domain
  std::int64_t ranks = 1, samples = 1, batch = 1;
  std::int64_t factor = 3;          // 3 or 2
  std::int64_t size = 0;            // of a network by name; 0: the network's own
  double alpha = 0, bandwidth = 1;  // seconds; bytes per second
  bool json = false;
};
void add_integrated(CLI::App& app, IntegratedOptions& options);
int integrated(const IntegratedOptions& options);

}  // namespace mpigrad::plan
