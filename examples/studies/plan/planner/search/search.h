#pragma once
// Which way of laying a training over ranks is the fastest, of those that fit into memory.

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
  std::function<std::unique_ptr<nn::Module>(bool recompute)> make;  // a fresh one, not built
  bool recomputes = false;                                          // whether `recompute` changes anything
  Shape input;                                                      // of one sample, [1, D, H, W, C]
  // What it is trained with, as DescribeOptions::objective; none: a sum of its results.
  std::function<Tensor(nn::Module& net, const Tensor& x)> objective{};
};

// A way of training.
struct Choice {
  GridExtents grid{};
  nn::LayerSplit split = ChannelSplit::filters;  // along grid.channel, and grid.filter beside it
  std::vector<LayerExtents> grids{};             // of layers that have their own
  bool recompute = false, sharded_weights = false;
  std::string precision = "float32";  // tf32, bfloat16, float16
  bool operator==(const Choice& other) const;
};
// "sample=4,depth=2,filter=2", as trainers' --grid has it.
std::string grid_text(const GridExtents& grid, const nn::LayerSplit& split);
// "sample=4,depth=2,filter=2, weights in parts"
std::string to_string(const Choice& choice);

struct SearchOptions {
  int ranks = 1;
  std::int64_t batch = 1;  // global
  std::vector<std::string> precisions{"float32"};
  std::function<std::unique_ptr<Optimizer>(Parameters&)> optimizer{};  // none: without
  bool own_grids = true;                                               // also layers with grids of their own
  int best = 5;                                                        // plans to return
  // Of the grids that come out best by an estimate, this many are laid out op by op, and up to half as many that are next to the
  // best one of these; 0: all.
  int traced = 16;
  double usable = 0.9;                // part of the device's memory that tensors may take: libraries need the rest
  double sample_bytes = 0;            // of one sample on the disk; 0: of the input in float32
  std::int64_t checkpoint_steps = 0;  // steps between two checkpoints; 0: none
  // Ranks of a node that work; 0: all, or as many as the machine's innermost level joins.
  int node_ranks = 0;
};

struct Plan {
  Choice choice;
  StepTime time{};
  double data = 0;          // seconds of a step in which the disk is slower than the step
  double checkpoints = 0;   // of a step, for what is written
  double seconds = 0;       // of a step, all of it
  double efficiency = 0;    // the work of one rank for this batch, over ranks times `seconds`
  std::int64_t memory = 0;  // bytes of tensors, on the rank with the most
  bool fits = true;
  std::vector<Diagnosis> limits{};  // what holds it back, the largest first
};

// All grids of so many ranks that the network and the batch allow. `alike`: of a cube only depth >= height >= width, for machines
// of one level, on which the others cost the same.
std::vector<Choice> grids_for(const Subject& subject, const SearchOptions& options, bool alike = false);
// A step of one rank with the whole batch.
struct OneRankStep {
  StepTrace step{};
  double work = 0;                                  // seconds of a step
  std::array<std::set<std::int64_t>, 3> extents{};  // that the input and layers have, along each dimension
};
OneRankStep one_rank_step(const Subject& subject, const Machine& machine, const std::string& precision,
                          const SearchOptions& options);
// One way, laid out op by op on the dry device; of the ranks on which it may take longest, the one on which it does.
Plan evaluate(const Subject& subject, const Machine& machine, const Choice& choice, const SearchOptions& options,
              const OneRankStep& whole, const OpTimes* ops = nullptr);
// The best ones, those that fit first, by seconds of a step. Recomputation, which only saves memory, is tried where a grid does
// not fit without, weights in parts there and on the fastest grids. Errors: a machine with fewer ranks, no grid at all, what
// describe() says of the network.
std::vector<Plan> search(const Subject& subject, const Machine& machine, const SearchOptions& options);

}  // namespace mpigrad::planner
