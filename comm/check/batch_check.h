#pragma once
// An audit of losses over a batch that is divided over ranks. Losses of pairs or of statistics of the whole batch are easily
// wrong by the number of ranks P or by 1/P, in the gradient only, so that no printed loss shows it.

#include <functional>
#include <string>

#include "comm/communicator.h"
#include "framework/engine/op.h"

namespace mpigrad {

// This rank's share of the loss of a batch: `rows` are this rank's samples, of every input; `same` are tensors that all ranks
// have alike (weights, a learned temperature), which the loss hands to replicate(), as those of the library do. The sum over
// ranks is the loss.
using BatchLoss = std::function<Tensor(const Tensors& rows, const Tensors& same, const Communicator& comm)>;

struct BatchCheckOptions {
  Tensors same{};        // alike on all ranks
  double tolerance = 0;  // of relative differences; 0: 1e-9 if all differentiated inputs have 64-bit numbers, else 1e-3
};

// The same on all ranks. Numbers are the worst of three divisions: balanced, almost all samples on the last rank, all but one on
// rank 0.
struct BatchReport {
  // Relative difference of the loss, beyond rounding: differences up to 450 eps sum |g_1 x|, with the inputs x and the eps of
  // their type, do not count, so that the loss may be 0.
  double value = 0;
  // Relative difference of the gradient, |g_P - g_1| / |g_1|, of all inputs together or of the worst one, where differences up to
  // 450 eps of the gradient of all do not count: an input may have a gradient that is 0 but for rounding.
  double gradient = 0;
  double factor = 1;     // <g_P, g_1> / <g_1, g_1>, of the same
  std::string input;     // the one of `gradient`, "inputs[0]" or "same[1]"; empty: all together
  bool parallel = true;  // g_P is `factor` times g_1, so that nothing else is wrong
  bool passed = true;
  std::string message;  // the failure, if there is one; names the factor if it is P or 1/P
};

// Compares value and gradient of a loss on the ranks of `comm` with those of the same batch on one rank (which computes it on a
// communicator of its own). `inputs`: the whole batch, the same on all ranks; tensors [N, ...] that are divided along dimension
// 0. Floating-point inputs are differentiated; others, such as labels, are passed on. Collective; exceptions of the loss pass
// through. Errors: fewer than two ranks or samples, no inputs, inputs of different numbers of samples.
BatchReport batch_check(const BatchLoss& loss, const Tensors& inputs, const Communicator& comm,
                        const BatchCheckOptions& options = {});
// The same; an Error on all ranks if it does not pass: "[invariant] NAME on 4 ranks: the gradient is 4 times that of one rank:
// ..."
void require_invariant(const std::string& name, const BatchLoss& loss, const Tensors& inputs, const Communicator& comm,
                       const BatchCheckOptions& options = {});

}  // namespace mpigrad
