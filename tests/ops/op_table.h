#pragma once
// One table of every op, on operands of any floating-point type and any device. Checked on the CPU by op_derivatives_test.cpp, on
// a GPU by op_table_devices_test.cpp.

#include <set>
#include <string>
#include <vector>

#include "tests/support/gradient_check.h"

namespace mpigrad::testing {

struct Row {
  // Uniform in [low, high), or in random order at equal distances, none at 0 where the bounds are opposite: for ops with kinks.
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
// Statistics of 16-bit elements are float32: what x becomes where they are asked for.
Tensor wide(const Tensor& x);

// Names of the ops of the headers in ops/: of the differentiable ones, or of all.
std::set<std::string> declared_ops(bool with_constants = false);

}  // namespace mpigrad::testing
