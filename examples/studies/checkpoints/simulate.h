#pragma once
// The costs of checkpoints on more ranks than there are, computed from measurements of one rank here and a machine's file.

#include <vector>

#include "examples/studies/checkpoints/measure.h"
#include "examples/studies/plan/planner/machine/machine.h"

namespace mpigrad::study {

// Rows for each number of ranks, for all networks with rows of one rank. A rank reads and writes no faster than the single rank
// measured here, and all ranks together no faster than the machine's storage and links allow:
//
//   seconds = max(n/r, n/d, N/D, n/b)
//
// n: bytes of one rank, N: of all ranks; r: measured bytes per second of one rank; d, D: the machine's for one rank and for all
// ranks; b: those of a rank's link to the storage. Messages are added by the best algorithm of Hockney's model
// (examples/studies/plan/planner/formulas/collective_cost.h). Caches of nodes, which let the ranks of a node read a file once,
// are ignored. Local disks are as fast as the measured one. Errors: a machine without [disk], or with fewer ranks.
std::vector<Row> simulate(const std::vector<Row>& measured, const planner::Machine& machine, const std::vector<int>& ranks);

}  // namespace mpigrad::study
