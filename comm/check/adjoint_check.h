#pragma once
// Checks the adjoints of functions of tensors across ranks, an op of the user's own among them: forward, first and second order,
// in random directions that differ per rank. Constant ones hide wrong roots and wrong slices. The objective is the sum over
// ranks.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/check/stacked.h"

namespace mpigrad {

struct AdjointOptions {
  std::vector<Across> inputs{}, outputs{};  // those that are not listed vary
  std::optional<bool> linear{};             // whether f is, in all its inputs together; none: found out
  double tolerance = 1e-11;                 // relative, of what is exact up to rounding; about 1e-4 for float32
  double difference_tolerance = 1e-7;       // relative, of derivatives against differences
  double step = 2e-3;                       // of the differences; a kink within it is told, see `kink`
  std::uint64_t seed = 1;
};

// The largest relative errors; all but `entries` is the same on all ranks.
struct AdjointReport {
  bool linear = false;  // which check was made: of a linear f at random x, or of its derivatives at `inputs`
  double first = 0;     // of J^T
  double exact = 0;     // of J^T against J by jvp; of linear functions the same as `first`
  double second = 0;    // of the derivative of J^T
  bool passed = true;
  std::string message;            // what was wrong
  std::string kink;               // where differences met a kink. Beside x it is no failure: smaller steps have agreed
  std::set<std::string> entries;  // names of all ops on this rank's tape, those of the replays included
};

// y = f(x), random cotangents u, directions v and w; sums are over ranks.
//
// f is linear if f(a + b) = f(a) + f(b), f(-a) = -f(a) and f(0) = 0 to rounding, at random a and b, or if options.linear says so.
// a and b are uniform in [-1, 1). Set options.linear = false for an f that throws there, or that is linear there only.
//
// A linear f, at random x:
//
//   first   <f(x), u> = <x, f^T u>
//   second  (f^T)^T w = f(w), elementwise: finds a vjp that is not made of ops, or calls the wrong one of a pair of transposes
//
// Any other f, at `inputs`:
//
//   first   <J v, u> by differences of f against <v, J^T u>
//   exact   <J v, u> by jvp against <v, J^T u>: to rounding, with vjps on both sides; that they belong to f the differences tell
//   second  the derivative of <J^T u, v> along x and u against differences of it
//
// Second order both by Record::yes and by a tape around a tape. A kink of f (of a maximum, a ReLU) within `step` of x spoils
// differences. It is recognised where `exact` agrees and differences with smaller steps do; on a kink there is no derivative to
// check, and the report says that instead of an error.
//
//   f             several tensors to several; runs a few dozen times, communicating alike. Integer outputs are left out
//   inputs        floating-point: shapes, types, layouts and, where f is not linear, the point. They may differ per rank, be of
//                 no elements, and become variables
//   communicator  all ranks that f communicates with. Collective
//
// Errors: an input that is not floating-point; what f itself throws. A wrong adjoint is in the report.
AdjointReport adjoint_check(const TensorFunction& f, const Tensors& inputs, const Communicator& communicator,
                            const AdjointOptions& options = {});
// The same; an Error on all ranks if it does not pass: "[adjoint] NAME on P ranks: what was wrong".
void require_adjoint(const std::string& name, const TensorFunction& f, const Tensors& inputs, const Communicator& communicator,
                     const AdjointOptions& options = {});

}  // namespace mpigrad
