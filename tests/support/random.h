#pragma once
// Random tensors of any type: the same numbers for all types, rounded.

#include "comm/check/adjoint_check.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/views/views.h"

namespace mpigrad::testing {

inline Tensor random_tensor(const Shape& shape, std::uint64_t seed, DType dtype = DType::float64) {
  return cast(random_like({zeros(shape, DType::float64)}, seed)[0], dtype);
}

}  // namespace mpigrad::testing
