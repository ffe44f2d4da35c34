#pragma once
// Runs an operation and its adjoint on all ranks and brings what they gave to rank 0.

#include <optional>

#include "examples/tools/adjoint/problem.h"

namespace mpigrad::adjoint {

constexpr std::int64_t largest_matrix = 16;  // rows and columns

// The operation on unit vectors: [row][column], rows and columns as the ranks' parts, one after the other. What is the same on
// all ranks stands there once.
struct Matrix {
  Sizes row_blocks, column_blocks;
  std::vector<std::vector<double>> rows;
};

// Complete on rank 0 only.
struct Result {
  Fields y, xbar;
  std::optional<double> adjoint_error;  // nothing where x has ties or is not finite
  std::optional<double> hessian;        // if it was asked for
  std::optional<Matrix> matrix, transposed;
};

// Collective. The matrices only on request, and if the operation is linear and they are small.
Result calculate(const Problem& problem, const Communicator& comm, bool with_matrices);

nlohmann::ordered_json to_json(const Problem& problem, const Result& result);
std::string to_text(const Problem& problem, const Result& result);
// Matrices and messages; wants the matrices.
std::string to_svg(const Problem& problem, const Result& result);

}  // namespace mpigrad::adjoint
