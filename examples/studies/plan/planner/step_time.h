#pragma once
// The duration of a training step on a machine: its ops one after the other, the communication between them, and the part of it
// that overlaps with computation (the form of the model of Dryden et al. 2019 and Oyama et al. 2020, at the grain of ops).

#include <array>
#include <optional>
#include <vector>

#include "examples/studies/plan/planner/machine/machine.h"
#include "examples/studies/plan/planner/machine/op_times.h"
#include "models/nn/step_trace.h"

namespace mpigrad::planner {

struct StepTimeOptions {
  int node_ranks = 0;  // ranks of a node that work; 0: as many as the innermost level connects
  bool tf32 = false;
  // The network's grid. A message between neighbours along an axis then takes as long as between those neighbours that are
  // farthest apart on the machine, because the others wait for these in their next step. None: this rank's own messages count.
  std::optional<GridExtents> grid{};
  // The machine's OpTimes for these options, if they exist already.
  const OpTimes* ops = nullptr;
};
// The number of ranks of a node that work at once, of so many.
int working_node_ranks(const Machine& machine, int ranks, int asked);

// Times of a layer without its overlapped reductions: forward and backward work, and waiting for messages.
struct LayerStepTime {
  double forward = 0, backward = 0, communication = 0;
};

// Seconds of a rank. The first six add up to `total`.
struct StepTime {
  double forward = 0, backward = 0, update = 0;  // working
  // Waiting: for halos, for inputs from other grids, for reductions and collectives.
  double halos = 0, redistribution = 0, collectives = 0;
  double total = 0;
  double hidden = 0;             // communication that overlapped with work
  double gradients = 0;          // reductions of gradients, in `collectives` and `hidden`
  double exposed_gradients = 0;  // those in `collectives`
  // The fraction of the work in ops that were measured with exactly these types, from 0 to 1.
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

// The packing of an event that communicates: copies of messages that are sent and of those that have arrived. Collectives take
// tensors as they are; a permutation before one is a separate op.
StepEvent packing_of(const StepEvent& event);

// The machine's level that a message from rank `a` to rank `b` of a grid crosses, or a message between two other ranks at the
// same offset, whichever is outermost.
int farthest_level(const Machine& machine, const GridExtents& grid, int a, int b);

StepTime time_step(const StepTrace& step, int rank, const Machine& machine, const StepTimeOptions& options = {});

}  // namespace mpigrad::planner
