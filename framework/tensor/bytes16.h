#pragma once
// Elements of 16 bytes that are only moved.

#include <cstdint>

namespace mpigrad {

struct alignas(16) Bytes16 {
  std::uint64_t low, high;
};

}  // namespace mpigrad
