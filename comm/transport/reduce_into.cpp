#include "comm/transport/reduce_into.h"

#include <cstdlib>

#include "comm/transport/combine.h"

namespace mpigrad {
namespace {

template <class T>
void reduce_bytes(void* a, const void* b, std::int64_t count, CombineOp op) {
  combine(static_cast<T*>(a), static_cast<const T*>(b), count, op);
}

}  // namespace

void reduce_into(void* accumulator, const void* in, std::int64_t count, DType type, CombineOp op) noexcept {
  switch (type) {
    case DType::float32: return reduce_bytes<float>(accumulator, in, count, op);
    case DType::float64: return reduce_bytes<double>(accumulator, in, count, op);
    // Unsigned: sums and products wrap without undefined behaviour; the order of max and min needs the sign.
    case DType::int64:
      if (op == CombineOp::sum || op == CombineOp::prod) return reduce_bytes<std::uint64_t>(accumulator, in, count, op);
      return reduce_bytes<std::int64_t>(accumulator, in, count, op);
    case DType::int32:
      if (op == CombineOp::sum || op == CombineOp::prod) return reduce_bytes<std::uint32_t>(accumulator, in, count, op);
      return reduce_bytes<std::int32_t>(accumulator, in, count, op);
    case DType::int16: return reduce_bytes<std::int16_t>(accumulator, in, count, op);
    case DType::uint8:
    case DType::boolean: return reduce_bytes<std::uint8_t>(accumulator, in, count, op);
    case DType::bfloat16: return reduce_bytes<BFloat16>(accumulator, in, count, op);
    case DType::float16: return reduce_bytes<Float16>(accumulator, in, count, op);
    // Only sums, which check_reduction() has made sure of.
    case DType::complex64: return reduce_bytes<float>(accumulator, in, 2 * count, op);
    case DType::complex128: return reduce_bytes<double>(accumulator, in, 2 * count, op);
    case DType::uint16: std::abort();  // check_reduction() has refused it before
  }
}

}  // namespace mpigrad
