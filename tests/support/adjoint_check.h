#pragma once
// Checks adjoints across ranks, in random directions that differ per rank. For y = f(x), f linear, and random cotangents u
//
//   first   sum_r <f(x), u>_r = sum_r <x, f^T u>_r
//   second  (f^T)^T w = f(w), elementwise: a vjp that is not made of ops, or calls the wrong one of a pair, is found out here
//
// and for any other f the derivatives of <f(x), u> and of <f'(x)^T u, w> against differences. What is the same on all ranks
// counts once; so do the parts of distributed tensors that several ranks hold. The cotangent of a share is the same on all its
// ranks.

#include <set>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "framework/op.h"
#include "tests/support/gradient_check.h"

namespace mpigrad::testing {

// Of a tensor without a layout.
enum class Kind : std::uint8_t { varying, same };

struct AdjointOptions {
  std::vector<Kind> inputs{}, outputs{};  // none: all vary
  bool linear = true;
  double tolerance = 1e-11;            // relative, of linear functions; and of what has to be the same on all ranks
  double difference_tolerance = 1e-7;  // relative, of derivatives against differences
  double step = 2e-3;
  std::uint64_t seed = 1;
};

struct AdjointReport {
  double first = 0, second = 0;  // largest errors of each order
  bool passed = true;
  std::string message;            // what was wrong; the same on all ranks, as everything here
  std::set<std::string> entries;  // names of all ops on the tape, those of the replays included
};

// `inputs` give types, layouts and, where f is not linear, the point; they become variables. Collective.
AdjointReport check_adjoint(const Communicator& comm, const TensorFunction& f, const Tensors& inputs,
                            const AdjointOptions& options = {});
// The same; an Error if it does not pass.
void require_adjoint(const std::string& what, const Communicator& comm, const TensorFunction& f, const Tensors& inputs,
                     const AdjointOptions& options = {});

// Throws if some element differs by more than tolerance max(1, |expected|).
void require_close(const std::string& what, const Tensor& found, const Tensor& expected, double tolerance = 1e-12);

}  // namespace mpigrad::testing
