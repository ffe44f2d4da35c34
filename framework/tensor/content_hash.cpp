#include "framework/tensor/content_hash.h"

#include "framework/base/target_clones.h"

namespace mpigrad {
namespace {

// The finaliser of SplitMix64 (Steele, Lea and Flood 2014), which is one-to-one: a change of one element changes the sum.
MPIGRAD_BODY std::uint64_t mixed(std::uint64_t bits, std::uint64_t place) {
  std::uint64_t z = bits + place * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

template <class Bits>
MPIGRAD_BODY std::uint64_t sum_body(const Bits* values, std::int64_t count, std::uint64_t first) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += mixed(values[i], first + static_cast<std::uint64_t>(i));
  return sum;
}
MPIGRAD_CLONES std::uint64_t sum(const std::uint8_t* v, std::int64_t n, std::uint64_t first) { return sum_body(v, n, first); }
MPIGRAD_CLONES std::uint64_t sum(const std::uint16_t* v, std::int64_t n, std::uint64_t first) { return sum_body(v, n, first); }
MPIGRAD_CLONES std::uint64_t sum(const std::uint32_t* v, std::int64_t n, std::uint64_t first) { return sum_body(v, n, first); }
MPIGRAD_CLONES std::uint64_t sum(const std::uint64_t* v, std::int64_t n, std::uint64_t first) { return sum_body(v, n, first); }

}  // namespace

std::uint64_t content_hash(DType type, const void* values, std::int64_t count, std::int64_t first) {
  const auto place = static_cast<std::uint64_t>(first) + 1;
  switch (size_of(type)) {
    case 1: return sum(static_cast<const std::uint8_t*>(values), count, place);
    case 2: return sum(static_cast<const std::uint16_t*>(values), count, place);
    case 4: return sum(static_cast<const std::uint32_t*>(values), count, place);
    case 16: return sum(static_cast<const std::uint64_t*>(values), 2 * count, 2 * place - 1);
    default: return sum(static_cast<const std::uint64_t*>(values), count, place);
  }
}

std::uint64_t content_hash(std::string_view text) {
  return mixed(sum(reinterpret_cast<const std::uint8_t*>(text.data()), static_cast<std::int64_t>(text.size()), 1), text.size());
}

}  // namespace mpigrad
