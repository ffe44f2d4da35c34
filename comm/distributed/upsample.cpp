#include "comm/distributed/upsample.h"

#include <algorithm>
#include <cmath>

#include "comm/distributed/local_parts.h"
#include "comm/halos/ghosts.h"

namespace mpigrad {
namespace {

// The outputs whose nearest inputs are below `input`: floor((2 o + 1) n / (2 m)) < input.
std::int64_t outputs_before(std::int64_t n, std::int64_t m, std::int64_t input) {
  if (input <= 0) return 0;
  // The smallest o with (2 o + 1) n >= 2 m input
  const auto whole = (2 * m * input + n - 1) / n;
  return std::clamp<std::int64_t>(whole / 2, 0, m);
}

}  // namespace

Tensor upsample(const Tensor& x, const Extent3& extents, Interpolation mode) {
  const auto in = spatial::global_spatial(x);
  for (std::size_t i = 0; i < 3; ++i)
    require(in[i] > 0 && extents[i] > 0, "[upsample] from {} to {} places in dimension {}: {}", in[i], extents[i], i + 1, x);
  const auto along = [&](Tensor y, std::size_t i, const LinePart& part) {
    return interpolate_along(y, static_cast<int>(i) + 1, part);
  };
  // The dimension that grows least comes first, so that what lies between is small.
  std::array<std::size_t, 3> order{0, 1, 2};
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return extents[a] * in[b] < extents[b] * in[a]; });
  if (!x.layout()) {
    Tensor y = x;
    for (const auto i : order) y = along(y, i, {mode, in[i], extents[i], 0, in[i], 0, extents[i]});
    return y;
  }
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
  const auto plan = spatial::windowed_plan(*x.layout(), extents, x.layout()->global[4], split);
  Tensor y = spatial::windowed_input(x, plan);
  const HaloRoom room(spatial::halo_dimension(plan));
  for (const auto i : order) {
    LinePart part{mode, in[i], extents[i], 0, in[i], 0, extents[i]};
    const auto& p = plan.part[i];
    if (plan.split[i]) part.in_begin = p.begin, part.in_end = p.end, part.out_begin = p.out_begin, part.out_end = p.out_end;
    y = along(y, i, part);
  }
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

}  // namespace mpigrad
