#pragma once
// The rate of a large product of matrices, with which steps are compared.

#include <string>

namespace mpigrad::bench {

// FLOP/s of a product of two 2048 x 2048 matrices on the current number of OpenMP threads, the fastest of three. `precision`:
// with bfloat16 by oneDNN's product of bfloat16 matrices; otherwise, and in builds without oneDNN, by matmul() of float32.
double product_rate(const std::string& precision);

}  // namespace mpigrad::bench
