#pragma once
// One table of all ops, for operands of any floating-point type on any device. op_derivatives_test.cpp checks it on the CPU,
// op_table_devices_test.cpp on a GPU.

#include <set>
#include <string>
#include <vector>

#include "tests/support/gradient_check.h"

namespace mpigrad::testing {

struct Row {
  // Uniform in [low, high); for ops with kinks in random order at equal distances, none at 0 if low = -high.
  struct Operand {
    Shape shape{};
    double low = -1, high = 1;
    bool separated = false;
  };
  std::string name;
  std::vector<Operand> operands;
  TensorFunction f;
  bool linear = false;
  double step = 2e-3, tolerance = 1e-7;
};

std::vector<Row> op_table();
Tensors make_operands(const Row& row, DType dtype);
// Statistics of 16-bit elements are float32: x in the type in which its statistics are computed.
Tensor wide(const Tensor& x);

// Names of the ops declared in headers of ops/: only the differentiable ones, or all.
std::set<std::string> declared_ops(bool with_constants = false);

}  // namespace mpigrad::testing
