#include "framework/tensor/half_rows.h"

#include "framework/base/target_clones.h"

namespace mpigrad::detail {
namespace {

template <class From, class To>
MPIGRAD_BODY void convert_body(const From* __restrict from, To* __restrict to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
}
// Not the public functions themselves: a declaration elsewhere would have to name the same targets.
MPIGRAD_CLONES void row(const BFloat16* from, float* to, std::int64_t n) { convert_body(from, to, n); }
MPIGRAD_CLONES void row(const Float16* from, float* to, std::int64_t n) { convert_body(from, to, n); }
MPIGRAD_CLONES void row(const float* from, BFloat16* to, std::int64_t n) { convert_body(from, to, n); }
MPIGRAD_CLONES void row(const float* from, Float16* to, std::int64_t n) { convert_body(from, to, n); }

}  // namespace

void convert(const BFloat16* from, float* to, std::int64_t n) { row(from, to, n); }
void convert(const Float16* from, float* to, std::int64_t n) { row(from, to, n); }
void convert(const float* from, BFloat16* to, std::int64_t n) { row(from, to, n); }
void convert(const float* from, Float16* to, std::int64_t n) { row(from, to, n); }

}  // namespace mpigrad::detail
