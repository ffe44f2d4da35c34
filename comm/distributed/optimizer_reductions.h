#pragma once
// Reductions over ranks for optimizers: norms of parameters that are cut over ranks (framework/optim/rules/rule.h), and agreement
// that gradients are finite on all ranks (framework/optim/loss_scale.h).

#include <functional>

#include "comm/communicator.h"
#include "framework/optim/loss_scale.h"
#include "framework/optim/optimizer.h"

namespace mpigrad {

// Sums over the ranks of `comm` the squares of those parameters for which is_cut is true; each rank has a part of these. The
// other parameters are the same on all ranks, or belong to ranks that are independent, and their norms are not changed.
// Collective in every step, so that the order of parameters and is_cut must be the same on all ranks.
//
//   LAMB lamb(parameters, {.reduce_norms = sum_norms_over(comm, [](const Parameter& p) { return p.name.ends_with("shard"); })});
NormReduction sum_norms_over(const Communicator& comm, std::function<bool(const Parameter&)> is_cut);

// True if all ranks of `comm` pass true.
Agreement all_agree(const Communicator& comm);

}  // namespace mpigrad
