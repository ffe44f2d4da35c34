// Rows of the table of ops: the composed functions of ops/array/.

#include <limits>
#include <vector>

#include "comm/halos/periodic.h"
#include "ops/array/creation.h"
#include "ops/array/padding.h"
#include "ops/array/shapes.h"
#include "ops/array/statistics.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/ops/op_rows.h"

namespace mpigrad::testing {

#define F(...) [](const Tensors& x) -> Tensors { return {__VA_ARGS__}; }

std::vector<Row> statistics_rows() {
  const Shape s{2, 3, 4};
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return {
      {"var", {{s}}, F(var(x[0], {0, 2}))},
      {"var, of a sample, kept", {{s}}, F(var(x[0], {1}, 1, true))},
      {"stddev", {apart(s)}, F(stddev(x[0], {-1}))},
      {"prod", {{s, 0.5, 1.5}}, F(prod(x[0], {1}))},
      {"prod of two dimensions, kept", {{s, 0.5, 1.5}}, F(prod(x[0], {0, 2}, true))},
      {"prod with a zero", {{{4, 3}, 0.5, 1.5}}, F(prod(x[0] * from_vector({3}, {1, 0, 1}, x[0].dtype()), {1}))},
      {"cumulative_sum", {{s}}, F(cumulative_sum(x[0], 1)), true},
      {"cumulative_sum, squared", {{{5}}}, F(square(cumulative_sum(x[0], 0)))},
      {"cumulative_prod", {{{2, 5}, 0.5, 1.5}}, F(cumulative_prod(x[0], -1))},
      {"diff", {{{2, 5}}}, F(diff(x[0], -1, 2)), true},
      {"vector_norm", {{s, 0.5, 1.5}}, F(vector_norm(x[0], {0, 2}))},
      {"vector_norm of order 1", {apart(s)}, F(square(vector_norm(x[0], {1}, 1, true)))},
      {"vector_norm of order 3", {apart(s, 0.5, 1.5)}, F(vector_norm(x[0], {2}, 3))},
      {"vector_norm, largest", {apart(s)}, F(square(vector_norm(x[0] + 2, {1}, infinity)))},
      {"vector_norm, smallest", {apart(s)}, F(square(vector_norm(x[0] + 2, {1}, -infinity)))},
      {"vecdot", {{{2, 1, 3}}, {{4, 3}}}, F(vecdot(x[0], x[1]))},
      {"tensordot", {{{2, 3, 4}}, {{4, 2, 5}}}, F(tensordot(x[0], x[1], {0, 2}, {1, 0}))},
      {"tensordot of one dimension", {{{2, 3}}, {{3, 2}}}, F(tensordot(x[0], x[1], 1))},
      {"matmul of a vector and a matrix", {{{3}}, {{2, 3, 4}}}, F(matmul(x[0], x[1]))},
      {"matmul of a matrix and a vector", {{{2, 4, 3}}, {{3}}}, F(matmul(x[0], x[1]))},
      {"matmul of vectors", {{{5}}, {{5}}}, F(matmul(x[0], x[1]))},
  };
}

std::vector<Row> shape_rows() {
  const Shape s{2, 3, 4}, matrix{3, 4};
  return {
      {"clone", {{s}}, F(clone(x[0])), true},
      {"tril", {{s}}, F(tril(x[0], 1)), true},
      {"triu, squared", {{s}}, F(square(triu(x[0], -1)))},
      {"diagonal", {{s}}, F(diagonal(x[0], 1)), true},
      {"diag", {{{3}}}, F(diag(x[0], -2)), true},
      {"meshgrid", {{{3}}, {{2}}}, F(meshgrid({x[0], x[1]})[0] * meshgrid({x[0], x[1]})[1])},
      {"stack", {{matrix}, {matrix}}, F(stack({x[0], x[1]}, 1)), true},
      {"split", {{s}}, F(split(x[0], {1, 3}, 2)[1] * 2, split(x[0], 2, 0)[0]), true},
      {"unbind", {{s}}, F(unbind(x[0], 1)[0] * unbind(x[0], 1)[2])},
      {"roll", {{s}}, F(roll(x[0], {1, -1}, {0, 2})), true},
      {"repeat", {{matrix}}, F(repeat(x[0], 2, 1)), true},
      {"tile", {{matrix}}, F(square(tile(x[0], {2, 1, 2})))},
      {"moveaxis", {{s}}, F(moveaxis(x[0], 0, -1)), true},
      {"swapaxes", {{s}}, F(swapaxes(x[0], 0, 1)), true},
      {"take of columns", {{matrix}}, F(square(take(x[0], from_vector({3}, {3, 0, 3}, DType::int64), 1)))},
      {"take_along_axis", {{matrix}}, F(square(take_along_axis(x[0], from_vector({3, 2}, {3, 0, 1, 1, 2, 3}, DType::int64), 1)))},
      {"pad at the edge", {{matrix}}, F(pad(x[0], {1, 2}, {3, 0}, PaddingMode::replicate)), true},
      {"pad by reflection", {{matrix}}, F(pad(x[0], {1, 2}, {2, 3}, PaddingMode::reflect)), true},
      {"pad symmetrically", {{matrix}}, F(pad(x[0], {1, 2}, {3, 0}, PaddingMode::symmetric)), true},
      {"pad periodically", {{matrix}}, F(square(pad(x[0], {1, 2}, {3, 4}, PaddingMode::circular)))},
  };
}

#undef F

}  // namespace mpigrad::testing
