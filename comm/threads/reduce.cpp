#include "comm/threads/reduce.h"

#include <type_traits>

namespace mpigrad::threads {
namespace {

template <class T>
bool replaces(T a, T b, bool larger) {
  if constexpr (std::is_floating_point_v<T>) {
    if (b != b) return true;
  }
  return larger ? b > a : b < a;
}

template <class T>
void reduce_typed(T* __restrict a, const T* __restrict b, std::int64_t count, Reduction op) {
  switch (op) {
    case Reduction::sum:
      for (std::int64_t i = 0; i < count; ++i) a[i] = static_cast<T>(a[i] + b[i]);
      return;
    case Reduction::prod:
      for (std::int64_t i = 0; i < count; ++i) a[i] = static_cast<T>(a[i] * b[i]);
      return;
    case Reduction::max:
      for (std::int64_t i = 0; i < count; ++i) a[i] = replaces(a[i], b[i], true) ? b[i] : a[i];
      return;
    case Reduction::min:
      for (std::int64_t i = 0; i < count; ++i) a[i] = replaces(a[i], b[i], false) ? b[i] : a[i];
      return;
  }
}

template <class T>
void reduce_bytes(void* a, const void* b, std::int64_t count, Reduction op) {
  reduce_typed(static_cast<T*>(a), static_cast<const T*>(b), count, op);
}

}  // namespace

void reduce_into(void* accumulator, const void* in, std::int64_t count, DType type, Reduction op) noexcept {
  switch (type) {
    case DType::float32: return reduce_bytes<float>(accumulator, in, count, op);
    case DType::float64: return reduce_bytes<double>(accumulator, in, count, op);
    // Unsigned: sums and products wrap without undefined behaviour; the order of max and min needs the sign.
    case DType::int64:
      if (op == Reduction::sum || op == Reduction::prod) return reduce_bytes<std::uint64_t>(accumulator, in, count, op);
      return reduce_bytes<std::int64_t>(accumulator, in, count, op);
    case DType::int32:
      if (op == Reduction::sum || op == Reduction::prod) return reduce_bytes<std::uint32_t>(accumulator, in, count, op);
      return reduce_bytes<std::int32_t>(accumulator, in, count, op);
    case DType::int16: return reduce_bytes<std::int16_t>(accumulator, in, count, op);
    case DType::uint8:
    case DType::boolean: return reduce_bytes<std::uint8_t>(accumulator, in, count, op);
  }
}

}  // namespace mpigrad::threads
