#pragma once
// Faults that kernels find in their operands. Kernels cannot throw: they write one record, and the host throws it as an Error the
// next time it waits for the GPU.

#include <cstdint>

namespace mpigrad::cuda {

enum class FaultKind : std::int32_t { none, take, scatter_add, label };
struct Fault {
  FaultKind kind = FaultKind::none;
  std::int64_t index = 0, limit = 0;
};

}  // namespace mpigrad::cuda
