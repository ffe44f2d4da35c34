#pragma once
// The rows of the table of ops, in groups.

#include <vector>

#include "tests/ops/op_table.h"

namespace mpigrad::testing {

using Operand = Row::Operand;

inline Operand apart(const Shape& shape, double low = -1, double high = 1) { return {shape, low, high, true}; }

std::vector<Row> elementwise_rows();
std::vector<Row> reduction_rows();
std::vector<Row> view_rows();
std::vector<Row> statistics_rows();
std::vector<Row> shape_rows();
std::vector<Row> matrix_rows();
std::vector<Row> complex_rows();
std::vector<Row> fourier_rows();
std::vector<Row> convolution_rows();
std::vector<Row> pooling_rows();
std::vector<Row> normalisation_and_loss_rows();

}  // namespace mpigrad::testing
