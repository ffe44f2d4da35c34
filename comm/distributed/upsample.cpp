#include "comm/distributed/upsample.h"

#include <algorithm>
#include <cmath>

#include "comm/distributed/distributed.h"
#include "comm/distributed/local_parts.h"
#include "comm/halos/ghosts.h"
#include "ops/array/shapes.h"

namespace mpigrad {
namespace {

// The number of outputs whose nearest inputs are below `input`: floor((2 o + 1) n / (2 m)) < input.
std::int64_t outputs_before(std::int64_t n, std::int64_t m, std::int64_t input) {
  if (input <= 0) return 0;
  // The smallest o with (2 o + 1) n >= 2 m input
  const auto whole = (2 * m * input + n - 1) / n;
  return std::clamp<std::int64_t>(whole / 2, 0, m);
}

void require_places(const char* op, const Tensor& x, const Extent3& in, const Extent3& extents) {
  for (std::size_t i = 0; i < 3; ++i)
    require(in[i] > 0 && extents[i] > 0, "[{}] from {} to {} places in dimension {}: {}", op, in[i], extents[i], i + 1, x);
}

spatial::WindowedPlan plan_of(const Tensor& x, const Extent3& in, const Extent3& extents, Interpolation mode) {
  std::array<spatial::SplitDimension, 3> split;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto* found = spatial::cuts_of(*x.layout(), i);
    if (!found) continue;
    const auto& cuts = *found;
    auto& [out, parts] = split[i];
    out.push_back(0);
    for (std::size_t r = 1; r < cuts.size(); ++r) {
      out.push_back(r + 1 == cuts.size() ? extents[i] : std::max(out.back(), outputs_before(in[i], extents[i], cuts[r])));
      WindowPart part{.begin = cuts[r - 1], .end = cuts[r - 1], .out_begin = out[r - 1], .out_end = out[r]};
      if (part.out_begin < part.out_end) {
        part.begin = inputs_of(mode, in[i], extents[i], part.out_begin).first;
        part.end = inputs_of(mode, in[i], extents[i], part.out_end - 1).second + 1;
      }
      parts.push_back(part);
    }
  }
  return spatial::windowed_plan(*x.layout(), extents, x.layout()->global[4], split);
}

// This rank's part of spatial dimension i.
LinePart line_of(const spatial::WindowedPlan& plan, std::size_t i, LinePart part) {
  const auto& p = plan.part[i];
  if (plan.split[i]) part.in_begin = p.begin, part.in_end = p.end, part.out_begin = p.out_begin, part.out_end = p.out_end;
  return part;
}

// The maximum over windows of the local x. The windows are laid out one after the other, as long as the longest one: a shorter
// one repeats its last element, which is never the first that attains the maximum.
Tensor max_over_windows(Tensor x, const std::array<LinePart, 3>& parts) {
  UseDevice device(x.device());
  Extent3 longest{1, 1, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& part = parts[i];
    const auto window = [&](std::int64_t o) { return inputs_of(part.mode, part.n, part.m, o); };
    for (auto o = part.out_begin; o < part.out_end; ++o)
      longest[i] = std::max(longest[i], window(o).second - window(o).first + 1);
    std::vector<double> from;
    for (auto o = part.out_begin; o < part.out_end; ++o)
      for (std::int64_t k = 0; k < longest[i]; ++k)
        from.push_back(static_cast<double>(std::min(window(o).first + k, window(o).second) - part.in_begin));
    const Shape shape{static_cast<std::int64_t>(from.size())};
    x = take(x, constant(from_vector(shape, from, DType::int64)), static_cast<int>(i) + 1);
  }
  return local::max_pool(x, {.kernel = longest, .stride = longest});
}

}  // namespace

Tensor upsample(const Tensor& x, const Extent3& extents, Interpolation mode) {
  const auto in = spatial::global_spatial(x);
  require_places("upsample", x, in, extents);
  const auto along = [&](Tensor y, std::size_t i, const LinePart& part) {
    return interpolate_along(y, static_cast<int>(i) + 1, part);
  };
  // The dimension that grows least comes first, so that intermediate results are small.
  std::array<std::size_t, 3> order{0, 1, 2};
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return extents[a] * in[b] < extents[b] * in[a]; });
  if (!x.layout()) {
    Tensor y = x;
    for (const auto i : order) y = along(y, i, {mode, in[i], extents[i], 0, in[i], 0, extents[i]});
    return y;
  }
  const auto plan = plan_of(x, in, extents, mode);
  Tensor y = spatial::windowed_input(x, plan);
  const HaloRoom room(spatial::halo_dimension(plan));
  for (const auto i : order) y = along(y, i, line_of(plan, i, {mode, in[i], extents[i], 0, in[i], 0, extents[i]}));
  return y.with_layout(plan.out);
}

Tensor upsample_by(const Tensor& x, const std::array<double, 3>& factors, Interpolation mode) {
  auto extents = spatial::global_spatial(x);
  for (std::size_t i = 0; i < 3; ++i) {
    require(std::isfinite(factors[i]) && factors[i] > 0, "[upsample] factors are positive, got {}", factors[i]);
    extents[i] = static_cast<std::int64_t>(std::floor(static_cast<double>(extents[i]) * factors[i]));
  }
  return upsample(x, extents, mode);
}

Tensor adaptive_max_pool(const Tensor& x, const Extent3& extents) {
  const auto in = spatial::global_spatial(x);
  require_places("adaptive_max_pool", x, in, extents);
  Extent3 each{};
  bool even = true;
  for (std::size_t i = 0; i < 3; ++i) each[i] = in[i] / extents[i], even = even && in[i] % extents[i] == 0;
  if (even) return max_pool(x, {.kernel = each, .stride = each});
  std::array<LinePart, 3> parts;
  for (std::size_t i = 0; i < 3; ++i) parts[i] = {Interpolation::area, in[i], extents[i], 0, in[i], 0, extents[i]};
  if (!x.layout()) return max_over_windows(x, parts);
  const auto plan = plan_of(x, in, extents, Interpolation::area);
  for (std::size_t i = 0; i < 3; ++i) parts[i] = line_of(plan, i, parts[i]);
  return max_over_windows(spatial::windowed_input(x, plan), parts).with_layout(plan.out);
}

}  // namespace mpigrad
