#pragma once
// What optimizers ask all ranks: norms of parameters that are cut over ranks (framework/optim/rules/rule.h), and whether
// gradients are finite everywhere (framework/optim/loss_scale.h).

#include <functional>

#include "comm/communicator.h"
#include "framework/optim/loss_scale.h"
#include "framework/optim/optimizer.h"

namespace mpigrad {

// Adds up over the ranks of `comm` the squares of the parameters for which is_cut, of which each rank has a part; the others are
// the same on all ranks, or of ranks that need nothing of each other, and stay as they are. Collective in every step, so that
// parameters and is_cut are in the same order on all ranks.
//
//   LAMB lamb(parameters, {.reduce_norms = sum_norms_over(comm, [](const Parameter& p) { return p.name.ends_with("shard"); })});
NormReduction sum_norms_over(const Communicator& comm, std::function<bool(const Parameter&)> is_cut);

// Whether all ranks of `comm` say yes.
Agreement all_agree(const Communicator& comm);

}  // namespace mpigrad
