#pragma once
// Checks the adjoints of functions of tensors across ranks, including user-defined ops: forward, first and second order, in
// random directions that differ per rank. (Constant directions would hide wrong roots and wrong slices.) The objective is the sum
// over ranks.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/check/stacked.h"

namespace mpigrad {

struct AdjointOptions {
  std::vector<Across> inputs{}, outputs{};  // tensors that are not listed vary
  std::optional<bool> linear{};             // whether f is linear in all its inputs together; not set: tested
  bool second = true;                       // false: first order by differences only, for a vjp that is not written in ops
  double tolerance = 1e-11;                 // relative, of quantities that are exact up to rounding; about 1e-4 for float32
  double difference_tolerance = 1e-7;       // relative, of derivatives compared with finite differences
  double step = 2e-3;                       // of the finite differences; a kink within it is reported, see `kink`
  std::uint64_t seed = 1;
};

// The largest relative errors; 0 for what was not checked. Everything but `entries` is the same on all ranks.
struct AdjointReport {
  bool linear = false;  // true: f was checked as a linear function, at random x; false: by its derivatives at `inputs`
  double first = 0;     // of J^T
  double exact = 0;     // of J^T compared with J by jvp; of linear functions the same as `first`
  double second = 0;    // of the derivative of J^T
  bool passed = true;
  std::string message;            // the failure, if there is one
  std::string kink;               // where finite differences met a kink. Near x it is not a failure: smaller steps have agreed
  std::set<std::string> entries;  // names of all ops on this rank's tape, including those of the replays
};

// The checks of y = f(x), with random cotangents u and directions v and w; sums are over ranks.
//
// f is linear if f(a + b) = f(a) + f(b), f(-a) = -f(a) and f(0) = 0 to rounding, at random a and b, or if options.linear says so.
// a and b are uniform in [-1, 1). Set options.linear = false for an f that throws in that range, or that is linear only there.
//
// A linear f, at random x:
//
//   first   <f(x), u> = <x, f^T u>
//   second  (f^T)^T w = f(w), elementwise: finds a vjp that is not made of ops, or that calls the wrong transpose of a pair
//
// Any other f, at `inputs`:
//
//   first   <J v, u> by finite differences of f compared with <v, J^T u>
//   exact   <J v, u> by jvp compared with <v, J^T u>: equal to rounding. Both sides use the vjps; `first` shows that these belong
//           to f
//   second  the derivative of <J^T u, v> along x and u compared with finite differences of <J^T u, v>
//
// Without options.second, `exact` of a function that is not linear and `second` are left out, because both differentiate a vjp.
// Second order is checked both by Record::yes and by a tape around a tape. A kink of f (of a maximum, a ReLU) within `step` of x
// spoils finite differences. It is recognised by `exact` agreeing and finite differences with smaller steps agreeing. Exactly on
// a kink there is no derivative to check, and the report says that instead of an error.
//
//   f             several tensors to several; runs a few dozen times with the same communication. Integer outputs are left out
//   inputs        floating-point tensors. They give shapes, types, layouts and, where f is not linear, the point. They may differ
//                 per rank or have no elements, and become variables
//   communicator  all ranks that f communicates with. Collective
//
// Errors: an input that is not floating-point; exceptions of f. A wrong adjoint is in the report.
AdjointReport adjoint_check(const TensorFunction& f, const Tensors& inputs, const Communicator& communicator,
                            const AdjointOptions& options = {});
// The same; an Error on all ranks if it does not pass: "[adjoint] NAME on P ranks: what was wrong".
void require_adjoint(const std::string& name, const TensorFunction& f, const Tensors& inputs, const Communicator& communicator,
                     const AdjointOptions& options = {});

}  // namespace mpigrad
