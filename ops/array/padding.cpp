#include "ops/array/padding.h"

#include <array>

#include "ops/array/creation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/layout_rules.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

// x with both ends of a dimension that no rank splits.
Tensor with_ends(const Tensor& x, const PaddedEnd& low, const PaddedEnd& high) {
  if (low.count == 0 && high.count == 0) return x;
  const int d = low.dimension;
  std::vector<Tensor> parts;
  const auto add = [&](const PaddedEnd& end) {
    if (end.count == 0) return;
    const auto [first, last] = end.source(x.dim(d), x);
    parts.push_back(end.from(slice(x, d, first, last)));
  };
  add(low), parts.push_back(x), add(high);
  return concatenate(parts, d);
}

}  // namespace

std::pair<std::int64_t, std::int64_t> PaddedEnd::source(std::int64_t n, const Tensor& x) const {
  const auto skipped = mode == PaddingMode::reflect ? 1 : 0;
  const auto most = mode == PaddingMode::replicate && n > 0 ? count : std::max<std::int64_t>(n - skipped, 0);
  require(!copies() || count <= most,
          "[pad] {} padding adds at most {} elements at an end of dimension {}, which has {}; {} are asked for: {}",
          name_of(mode), most, dimension, n, count, x);
  if (!copies()) return {0, 0};
  if (mode == PaddingMode::replicate) return high ? std::pair{n - 1, n} : std::pair<std::int64_t, std::int64_t>{0, 1};
  const bool at_end = high == (mode != PaddingMode::circular);
  return at_end ? std::pair{n - skipped - count, n - skipped} : std::pair{std::int64_t{skipped}, skipped + count};
}

Tensor PaddedEnd::from(const Tensor& planes) const {
  if (mode == PaddingMode::circular || (copies() && count == 1)) return planes;
  if (mode == PaddingMode::replicate) return concatenate(Tensors(static_cast<std::size_t>(count), planes), dimension);
  if (mode != PaddingMode::zeros) return flip(planes, {dimension});
  auto shape = planes.shape();
  shape[dimension] = count;
  UseDevice use(planes.device());
  return constant(zeros(shape, planes.dtype()));
}

Tensor PaddedEnd::back(const Tensor& end) const {
  if (mode == PaddingMode::circular || count == 1) return end;
  return mode == PaddingMode::replicate ? sum(end, {dimension}, true) : flip(end, {dimension});
}

std::pair<PaddedEnd, PaddedEnd> ends_of(const Padding& p, std::size_t i, const Tensor& x) {
  require(p.low[i] >= 0 && p.high[i] >= 0, "[pad] numbers of elements must not be negative, got {} and {} in dimension {}: {}",
          p.low[i], p.high[i], i + 1, x);
  const int d = static_cast<int>(i) + 1;
  return {{d, p.low[i], p.low_mode[i], false}, {d, p.high[i], p.high_mode[i], true}};
}

Tensor pad(const Tensor& x, const Shape& low, const Shape& high, PaddingMode mode) {
  require(low.rank() == x.rank() && high.rank() == x.rank(),
          "[pad] one number of elements for each dimension, got {} and {} for {}", low, high, x);
  if (mode == PaddingMode::zeros) return pad(x, low, high, 0.0);
  Tensor y = x;
  for (int d = 0; d < x.rank(); ++d) {
    require(low[d] >= 0 && high[d] >= 0, "[pad] numbers of elements must not be negative, got {} and {}: {}", low, high, x);
    if (low[d] != 0 || high[d] != 0) require_whole("pad", x, std::array{d});
    y = with_ends(y, {d, low[d], mode, false}, {d, high[d], mode, true});
  }
  return y;
}

Tensor local::pad(const Tensor& x, const Padding& padding) {
  require(x.rank() == 5, "[pad] needs [N, D, H, W, C]: {}", x);
  Tensor y = x;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto [low, high] = ends_of(padding, i, x);
    y = with_ends(y, low, high);
  }
  return y;
}

Tensor local::unpad(const Tensor& y, const Padding& padding) {
  require(y.rank() == 5, "[unpad] needs [N, D, H, W, C]: {}", y);
  Tensor x = y;
  for (std::size_t i = 3; i-- > 0;) {
    const auto [low, high] = ends_of(padding, i, y);
    const int d = low.dimension;
    const auto whole = x.dim(d), n = whole - low.count - high.count;
    require(n >= 0, "[unpad] padding of {} and {} elements in dimension {} is longer than {}", low.count, high.count, d, y);
    Tensor inner = slice(x, d, low.count, whole - high.count);
    for (const auto& end : {low, high}) {
      const auto [first, last] = end.source(n, y);
      if (!end.copies()) continue;
      Shape before{0, 0, 0, 0, 0}, after = before;
      before[d] = first, after[d] = n - last;
      inner = inner +
              mpigrad::pad(end.back(end.high ? slice(x, d, whole - end.count, whole) : slice(x, d, 0, end.count)), before, after);
    }
    x = inner;
  }
  return x;
}

}  // namespace mpigrad
