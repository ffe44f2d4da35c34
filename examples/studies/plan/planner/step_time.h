#pragma once
// How long a training step takes on a machine: its ops one after the other, what ranks say to each other between them, and what
// of that travels while they compute (the form of the model of Dryden et al. 2019 and Oyama et al. 2020, at the grain of ops).

#include <array>
#include <optional>
#include <vector>

#include "examples/studies/plan/planner/machine/machine.h"
#include "examples/studies/plan/planner/machine/op_times.h"
#include "models/nn/step_trace.h"

namespace mpigrad::planner {

struct StepTimeOptions {
  int node_ranks = 0;  // ranks of a node that work; 0: as many as the machine's innermost level joins
  bool tf32 = false;
  // Of the network. A message between neighbours along it takes as long as between those of them that are farthest apart on the
  // machine, because the others wait for these in their next step. None: as long as this rank's own.
  std::optional<GridExtents> grid{};
  // Those of the machine, for these options, where they are there already.
  const OpTimes* ops = nullptr;
};
// How many ranks of a node work at once, of so many.
int working_node_ranks(const Machine& machine, int ranks, int asked);

// Of one layer, without what is reduced beside it: forward and backward, standing still for messages.
struct LayerStepTime {
  double forward = 0, backward = 0, communication = 0;
};

// Seconds of a rank. The first six add up to `total`.
struct StepTime {
  double forward = 0, backward = 0, update = 0;  // at work
  // Standing still: for halos, for inputs from other grids, for reductions and collectives.
  double halos = 0, redistribution = 0, collectives = 0;
  double total = 0;
  double hidden = 0;             // communication that took place beside work
  double gradients = 0;          // reductions of gradients, of `collectives` and of `hidden`
  double exposed_gradients = 0;  // those of `collectives`
  // How much of the work is of ops measured on these very types, from 0 to 1.
  double measured_share = 0;
  std::vector<LayerStepTime> layers{};
};

// A rank's coordinates along sample, depth, height, width, channel and filter: rank = ((((s*D + d)*H + h)*W + w)*C + c)*F + f.
using GridPlace = std::array<int, 6>;
GridPlace extents_of(const GridExtents& grid);
inline int weight_parts(const GridExtents& grid) { return grid.channel * grid.filter; }
GridPlace place_of(int rank, const GridExtents& grid);

// One collective of a rank, as the dry transport logs it, by itself.
double collective_seconds(const DryRecord& call, const Machine& machine, int node_ranks);

// The copies of an event that communicates: of messages that are sent, and when they have come. Collectives take tensors as they
// are, and permuting one before is an op of its own.
StepEvent packing_of(const StepEvent& event);

// The machine's level that a message between rank `a` and rank `b` of a grid crosses, or one between two other ranks that lie to
// each other as these do, whichever is the outermost.
int farthest_level(const Machine& machine, const GridExtents& grid, int a, int b);

StepTime time_step(const StepTrace& step, int rank, const Machine& machine, const StepTimeOptions& options = {});

}  // namespace mpigrad::planner
