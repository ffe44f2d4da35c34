#pragma once
// What checkpoints would cost on more ranks than there are: from what one rank has measured here and a machine's file.

#include <vector>

#include "examples/studies/checkpoints/measure.h"
#include "examples/studies/plan/planner/machine/machine.h"

namespace mpigrad::study {

// Rows for each number of ranks, of all networks with rows of one rank. A rank reads and writes no faster than it did alone,
// here, and all together no faster than the machine's storage and links let them:
//
//   seconds = max(n/r, n/d, N/D, n/b)
//
// n: bytes of one rank, N: of all; r: bytes per second that one rank was measured at; d, D: the machine's for one rank and for
// all; b: of a rank's link, behind which the storage is. Added to this are messages by the best algorithm of Hockney's model
// (examples/studies/plan/planner/formulas/collective_cost.h). Caches of nodes, which let the ranks of one read a file once, are
// left out. Local disks are as quick as the one that was measured. Errors: a machine without [disk], or with fewer ranks.
std::vector<Row> simulate(const std::vector<Row>& measured, const planner::Machine& machine, const std::vector<int>& ranks);

}  // namespace mpigrad::study
