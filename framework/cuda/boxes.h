#pragma once
// Boxes inside row-major arrays of a GPU: packed into one piece, unpacked, added. In the order of the compute stream. No types of
// the framework here, whose headers nvcc does not compile.

#include <cstdint>

namespace mpigrad::cuda {

// Rows of `length` elements that lie together, at offsets of `extents` x `strides` elements; the last dimension runs fastest.
struct BoxRows {
  static constexpr int most = 8;
  int rank = 0;
  std::int64_t extents[most] = {}, strides[most] = {};
  std::int64_t length = 0;

  std::int64_t rows() const {
    std::int64_t product = 1;
    for (int d = 0; d < rank; ++d) product *= extents[d];
    return product;
  }
};

// `item` bytes an element; `array` is the first element of the box.
void pack_box(void* packed, const void* array, const BoxRows& box, std::int64_t item);
void unpack_box(void* array, const void* packed, const BoxRows& box, std::int64_t item);
// array += packed; 16-bit floats: computed in float32 and rounded. Integers wrap.
enum class Addends : std::uint8_t { integers, floats, bfloats };
void add_box(void* array, const void* packed, const BoxRows& box, std::int64_t item, Addends kind);

}  // namespace mpigrad::cuda
