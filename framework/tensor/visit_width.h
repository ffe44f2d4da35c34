#pragma once
// Treats elements that are only moved as unsigned integers of the same width.

#include <cstdint>

#include "framework/tensor/bytes16.h"
#include "framework/tensor/dtype.h"

namespace mpigrad {

// Calls f with a value of an unsigned integer (or Bytes16) as wide as the elements: moving needs no arithmetic.
template <class F>
void visit_width(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 16: return f(Bytes16{});
    case 8: return f(std::uint64_t{});
    case 4: return f(std::uint32_t{});
    case 2: return f(std::uint16_t{});
    default: return f(std::uint8_t{});
  }
}

}  // namespace mpigrad
