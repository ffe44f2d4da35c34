#pragma once
// Runs an operation and its adjoint on all ranks and gathers the results on rank 0.

#include <optional>

#include "examples/tools/adjoint/problem.h"

namespace mpigrad::adjoint {

constexpr std::int64_t largest_matrix = 16;  // rows and columns

// The matrix of the operation, computed with unit vectors: [row][column], where rows and columns are the ranks' blocks, one after
// the other. A value that is replicated on all ranks has one row or column.
struct Matrix {
  Sizes row_blocks, column_blocks;
  std::vector<std::vector<double>> rows;
};

// Complete on rank 0 only.
struct Result {
  Fields y, xbar;
  std::optional<double> adjoint_error;  // none if x has ties or is not finite
  std::optional<double> hessian;        // if it was requested
  std::optional<Matrix> matrix, transposed;
};

// Collective. Computes the matrices only on request, and only if the operation is linear and they are small.
Result calculate(const Problem& problem, const Communicator& comm, bool with_matrices);

nlohmann::ordered_json to_json(const Problem& problem, const Result& result);
std::string to_text(const Problem& problem, const Result& result);
// Matrices and messages; `result` must have the matrices.
std::string to_svg(const Problem& problem, const Result& result);

}  // namespace mpigrad::adjoint
