#pragma once
// Checks first and second derivatives of functions of tensors against differences in random directions, in float64.
//
// For y = f(x), cotangents u and a direction v, all random:
//   first   <u, d/dt f(x + t v)>           = <J^T u, v>
//   second  d/dt <J(x + t v)^T (u + t q), w> = <derivative of <J^T u, w> with respect to x and u, (v, q)>
// The second check takes u as a variable, so that it detects a vjp that bypasses ops even if f is linear.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "comm/check/adjoint_check.h"

namespace mpigrad::testing {

struct GradientCheckOptions {
  int directions = 2;
  double step = 2e-3;       // t; choose points of functions with kinks farther than this from the kinks
  double tolerance = 1e-7;  // relative error
  bool second_order = true;
  std::uint64_t seed = 1;
};

struct GradientReport {
  double first = 0, second = 0;  // largest relative errors
  double nested = 0;             // second derivatives: a tape around a tape against one tape with Record::yes
  bool passed = true;
  std::string message;            // the worst case, as text
  std::set<std::string> entries;  // names of all ops on the tape, including those that the replay recorded
};

// f may return several tensors; integer outputs are ignored. `inputs` are float64 and become variables.
GradientReport check_gradients(const TensorFunction& f, const Tensors& inputs, const GradientCheckOptions& options = {});

// Relative difference of <f(x), u> and <x, J^T u> for a random u: 0 up to rounding if f is linear in all its inputs.
double linearity_error(const TensorFunction& f, const Tensors& inputs, std::uint64_t seed = 1);

// Throws an Error if an element differs by more than tolerance max(1, |expected|).
void require_close(const std::string& what, const Tensor& found, const Tensor& expected, double tolerance = 1e-12);

}  // namespace mpigrad::testing
