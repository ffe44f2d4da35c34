#include "models/data/narrow.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "framework/base/error.h"
#include "framework/cuda/cuda.h"
#include "framework/cuda/staging.h"
#include "framework/engine/tape.h"
#include "models/data/sources/bytes.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad::data {

namespace {

// f(first, count) for the numbers of every row of the box, all channels.
template <class T, class F>
void for_rows(const Box& box, const Stored& stored, std::int64_t channels, F f) {
  const auto region = stored.region.extents(), extents = box.extents();
  Shape at = box.begin;
  for (int a = 0; a < 3; ++a) at[a] -= stored.region.begin[a];
  for (std::int64_t d = 0; d < extents[0]; ++d)
    for (std::int64_t h = 0; h < extents[1]; ++h)
      f(static_cast<const T*>(stored.from) + (((at[0] + d) * region[1] + at[1] + h) * region[2] + at[2]) * channels,
        extents[2] * channels);
}

}  // namespace

void require_counts(const Box& box, const Stored& stored, std::int64_t channels, const std::function<std::string()>& name) {
  visit_stored(stored.type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_signed_v<T>) {  // true for floating-point types, too
      T least{};
      for_rows<T>(box, stored, channels, [&](const T* row, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) least = std::min(least, row[i]);
      });
      require(least >= 0, "[data] {}: log(1 + x) is for counts, but a value is {}", name(), least);
    }
  });
}

void require_float32(const double* values, std::int64_t count, const std::function<std::string()>& name) {
  // The first loop has no branch, so that it is vectorised.
  const auto beyond = [](double value) {
    const double size = std::abs(value);
    return (size > greatest_float32) & (size <= std::numeric_limits<double>::max());
  };
  bool any = false;
  for (std::int64_t i = 0; i < count; ++i) any |= beyond(values[i]);
  for (std::int64_t i = 0; any && i < count; ++i)
    if (beyond(values[i]))
      fail("[data] {}: {} is beyond float32, whose greatest number is {:.3g}", name(), values[i],
           std::numeric_limits<float>::max());
}

void require_float32(const Box& box, const Stored& stored, std::int64_t channels, const std::function<std::string()>& name) {
  for_rows<double>(box, stored, channels, [&](const double* row, std::int64_t count) { require_float32(row, count, name); });
}

// Computed on the host for every stored integer by the function that transforms on the host, so that no rounding of the GPU can
// differ.
const Tensor& Widening::table() {
  auto& found = tables_[cuda::selected()];
  if (found) return found;
  const auto patterns = std::int64_t{1} << (8 * size_of(stored_));
  Tensor host({Shape{patterns}, type_}, DeviceKind::cpu);
  visit_floating(type_, [&](auto zero) {
    using T = decltype(zero);
    auto* values = reinterpret_cast<T*>(host.raw());
    std::fill(values, values + patterns, std::numeric_limits<T>::quiet_NaN());
  });
  // For signed integers, the bit patterns of negative numbers are the upper half.
  const auto count = transform_ == Transform::log1p && stored_ == DType::int16 ? patterns / 2 : patterns;
  std::vector<std::byte> integers(static_cast<std::size_t>(count * size_of(stored_)));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    if (size_of(stored_) == 2) std::memcpy(integers.data() + 2 * i, &bits, sizeof(bits));
    else integers[static_cast<std::size_t>(i)] = static_cast<std::byte>(bits);
  }
  Piece all;
  all.box = {Shape{0, 0, 0}, Shape{1, 1, count}};
  copy_piece(all, {all.box, stored_, integers.data()}, all.box.end, 1, transform_, type_, host.raw(),
             [] { return std::string("the table of counts"); });
  found = detail::copied(host, DeviceKind::cuda);
  return found;
}

Tensor Widening::operator()(const Tensor& x) {
  require(x.dtype() == stored_, "[data] values of type {} are converted here, not {}", name_of(stored_), x);
  const Untaped scope;
  if (transform_ == Transform::none) return constant(cast(x, type_));  // exact
  Tensor y({x.shape(), type_}, DeviceKind::cuda);
  cuda::look_up(x, table(), y);
  return constant(y);
}

}  // namespace mpigrad::data
