#pragma once
// Checks the derivatives of functions of tensors against differences, in random directions, at first and second order. Float64.
//
// For y = f(x), cotangents u and a direction v, all random:
//   first   <u, d/dt f(x + t v)>           = <J^T u, v>
//   second  d/dt <J(x + t v)^T (u + t q), w> = <derivative of <J^T u, w> with respect to x and u, (v, q)>
// u is a variable of the second, so that a vjp that bypasses ops is found out even where f is linear.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "comm/check/adjoint_check.h"

namespace mpigrad::testing {

struct GradientCheckOptions {
  int directions = 2;
  double step = 2e-3;       // t; functions with kinks are to be asked at points farther than this from them
  double tolerance = 1e-7;  // relative error
  bool second_order = true;
  std::uint64_t seed = 1;
};

struct GradientReport {
  double first = 0, second = 0;  // largest relative errors
  double nested = 0;             // of second derivatives by a tape around a tape, against one tape with Record::yes
  bool passed = true;
  std::string message;            // what was worst, for people
  std::set<std::string> entries;  // names of all ops met on the tape, those of the replay included
};

// f may return several tensors; integer outputs are left out. `inputs` are float64 and become variables.
GradientReport check_gradients(const TensorFunction& f, const Tensors& inputs, const GradientCheckOptions& options = {});

// Relative difference of <f(x), u> and <x, J^T u> for a random u: 0 up to rounding where f is linear in all its inputs.
double linearity_error(const TensorFunction& f, const Tensors& inputs, std::uint64_t seed = 1);

// Throws if some element differs by more than tolerance max(1, |expected|).
void require_close(const std::string& what, const Tensor& found, const Tensor& expected, double tolerance = 1e-12);

}  // namespace mpigrad::testing
