#pragma once
// Search for the fastest way to lay a training out over ranks, among those that fit into memory.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "examples/studies/plan/planner/formulas/oracle.h"
#include "examples/studies/plan/planner/machine/machine.h"
#include "examples/studies/plan/planner/step_time.h"

namespace mpigrad::planner {

struct Subject {
  std::function<std::unique_ptr<nn::Module>(bool recompute)> make;  // a new one, not built
  bool recomputes = false;                                          // true if `recompute` has an effect
  Shape input;                                                      // of one sample, [1, D, H, W, C]
  // The training's objective, as DescribeOptions::objective; none: a sum of the network's results.
  std::function<Tensor(nn::Module& net, const Tensor& x)> objective{};
};

// A way to train: grid, weights, recomputation and precision.
struct Choice {
  GridExtents grid{};                            // with the stages of a pipeline
  std::int64_t micro_batches = 1;                // of a pipeline
  nn::LayerSplit split = ChannelSplit::filters;  // along grid.channel, or grid.channel and grid.filter
  std::vector<LayerExtents> grids{};             // of layers with their own grids
  bool recompute = false, sharded_weights = false;
  std::string precision = "float32";  // tf32, bfloat16, float16
  bool operator==(const Choice& other) const;
};
// "stage=2,sample=4,depth=2,filter=2", as --grid of trainers.
std::string grid_text(const GridExtents& grid, const nn::LayerSplit& split);
// "stage=2,sample=4,depth=2,filter=2, 8 micro-batches, weights in parts"
std::string to_string(const Choice& choice);

// Makes an Adam as a training on GPUs or on processors does.
std::function<std::unique_ptr<Optimizer>(Parameters&)> adam_on(bool gpu);

struct SearchOptions {
  int ranks = 1;
  std::int64_t batch = 1;  // global
  std::vector<std::string> precisions{"float32"};
  std::function<std::unique_ptr<Optimizer>(Parameters&)> optimizer{};  // none: without
  bool own_grids = true;                                               // also tries layers with their own grids
  int stages = 8;                                                      // most stages of a pipeline; 1: none
  int best = 5;                                                        // plans to return
  // The number of grids with the best estimates that are laid out op by op, in addition to at most half as many that are
  // neighbours of the best of these; 0: all.
  int traced = 16;
  double usable = 0.9;                // fraction of the device's memory for tensors: libraries need the rest
  double sample_bytes = 0;            // of one sample on the disk; 0: the input in float32
  std::int64_t checkpoint_steps = 0;  // steps between two checkpoints; 0: none
  // Ranks of a node that work; 0: all, or as many as the machine's innermost level connects.
  int node_ranks = 0;
};

struct Plan {
  Choice choice;
  StepTime time{};
  double data = 0;          // seconds by which reading the data is slower than the step
  double checkpoints = 0;   // seconds of a step for writing checkpoints
  double seconds = 0;       // of a step, in total
  double bubble = 0;        // of a pipeline: the fraction of time in which ranks compute nothing
  double folded = 0;        // of the first plan with stages: seconds of a step with folded placement; 0: unknown
  double efficiency = 0;    // work of one rank for this batch / (ranks * `seconds`)
  std::int64_t memory = 0;  // bytes of tensors, on the rank with the most
  bool fits = true;
  std::vector<Diagnosis> limits{};  // what limits it, the largest first
};

// All grids of so many ranks that the network and the batch allow. `alike`: for cubes only depth >= height >= width, for machines
// of one level, on which the others cost the same.
std::vector<Choice> grids_for(const Subject& subject, const SearchOptions& options, bool alike = false);
// The step of one rank with the whole batch.
struct OneRankStep {
  StepTrace step{};
  double work = 0;                                  // seconds of a step
  std::array<std::set<std::int64_t>, 3> extents{};  // of the input and layers, along each dimension
};
OneRankStep one_rank_step(const Subject& subject, const Machine& machine, const std::string& precision,
                          const SearchOptions& options);
// Evaluates one way, laid out op by op in a dry run, on the slowest of the ranks on which it may take longest; with stages on one
// such rank of each, by their schedule (search/pipeline.h).
Plan evaluate(const Subject& subject, const Machine& machine, const Choice& choice, const SearchOptions& options,
              const OneRankStep& whole, const OpTimes* ops = nullptr);
// The best plans by seconds of a step, those that fit first. Recomputation, which only saves memory, is tried if a grid does not
// fit without; weights in parts are tried there and on the fastest grids. Errors: a machine with fewer ranks, no possible grid,
// errors of describe() for the network.
std::vector<Plan> search(const Subject& subject, const Machine& machine, const SearchOptions& options);

}  // namespace mpigrad::planner
