#include "models/simulation/fields.h"

#include <algorithm>
#include <cmath>

#include "comm/distributed/grid.h"
#include "comm/halos/exchange.h"
#include "framework/base/joined.h"
#include "models/simulation/spectral.h"
#include "ops/elementwise/elementwise.h"
#include "ops/extents.h"
#include "ops/views/views.h"

namespace mpigrad::fields {
namespace {

// The local x with m more planes on either side of `dimension`.
Tensor with_halo(const Tensor& x, int dimension, std::int64_t m, Boundary boundary) {
  const auto local = x.without_layout();
  const auto n = global_shape(x)[dimension];
  const bool periodic = boundary == Boundary::periodic;
  // The planes that continue a block [begin, end) of n below 0 and above n; between walls in reverse order.
  const auto below = [&](std::int64_t begin, std::int64_t) {
    const auto count = std::max<std::int64_t>(m - begin, 0);
    return periodic ? Range{n - count, n} : Range{0, count};
  };
  const auto above = [&](std::int64_t, std::int64_t end) {
    const auto count = std::max<std::int64_t>(end + m - n, 0);
    return periodic ? Range{0, count} : Range{n - count, n};
  };
  const auto continued = [&](const Tensor& planes) {
    if (periodic) return planes;
    const auto mirrored = flip(planes, {dimension});
    return boundary == Boundary::dirichlet ? -mirrored : mirrored;
  };
  const int axis = x.layout() ? x.layout()->axis_of(dimension) : -1;
  if (axis < 0 || x.layout()->grid->extents[static_cast<std::size_t>(axis)] == 1) {
    const auto part = [&](const Range& range) { return continued(slice(local, dimension, range.begin, range.end)); };
    return concatenate({part(below(0, n)), local, part(above(0, n))}, dimension);
  }
  const auto& grid = grid_of(*x.layout());
  const auto block = [&](int rank) { return x.layout()->box(rank); };
  // The planes range(begin, end) for the block [begin, end) of each rank.
  const auto planes = [&](const auto& range) {
    auto plan = std::make_shared<BoxPlan>();
    for (const int rank : grid.members({axis})) {
      auto& need = plan->need.emplace_back(plan->have.emplace_back(block(rank)));
      auto &begin = need.begin[dimension], &end = need.end[dimension];
      const Range wanted = begin < end ? range(begin, end) : Range{};
      begin = wanted.begin, end = wanted.end;
    }
    return exchange(local, grid.along({axis}), plan);
  };
  const auto inside = planes([&](std::int64_t begin, std::int64_t end) {
    return Range{std::max<std::int64_t>(begin - m, 0), std::min(end + m, n)};
  });
  const auto own = block(grid.rank);
  const auto low = [&](std::int64_t begin) { return begin < m; };
  bool both = false;  // whether a block is that close to either end
  for (const int rank : grid.members({axis})) {
    const auto box = block(rank);
    both = both || (low(box.begin[dimension]) && box.end[dimension] + m > n);
  }
  if (!both) {
    const auto outside = continued(
        planes([&](std::int64_t begin, std::int64_t end) { return low(begin) ? below(begin, end) : above(begin, end); }));
    return concatenate(low(own.begin[dimension]) ? Tensors{outside, inside} : Tensors{inside, outside}, dimension);
  }
  const auto before = continued(planes(below)), after = continued(planes(above));
  return concatenate({before, inside, after}, dimension);
}

void require_field(const char* op, const Tensor& x, const DifferenceOptions& options) {
  require(x.rank() == 5, "[fields::{}] takes [N, D, H, W, C]: {}", op, x);
  require(is_floating(x.dtype()) && !(x.layout() && x.layout()->has(Placement::partial)),
          "[fields::{}] takes floating-point tensors that are no partial sums: {}", op, x);
  for (const double spacing : options.spacing)
    require(spacing > 0 && std::isfinite(spacing), "[fields::{}] the spacing is positive: {}", op, spacing);
  if (options.order != spectral) difference_weights(1, options.order);
}

void require_whole_channels(const char* op, const Tensor& x) {
  const int axis = x.layout() ? x.layout()->axis_of(4) : -1;
  require(axis < 0 || x.layout()->grid->extents[static_cast<std::size_t>(axis)] == 1,
          "[fields::{}] channels are split; redistribute them so that every rank has all: {}", op, x);
}

// The boundary of a first derivative: those of odd functions are even.
Boundary of_derivative(Boundary boundary) {
  if (boundary == Boundary::periodic) return boundary;
  return boundary == Boundary::dirichlet ? Boundary::neumann : Boundary::dirichlet;
}

// Derivative number `derivative` along spatial dimension d; no tensor for an extent of 1.
Tensor difference(const Tensor& x, std::size_t d, int derivative, const DifferenceOptions& options, Boundary boundary) {
  const int dimension = static_cast<int>(d) + 1;
  if (global_shape(x)[dimension] == 1) return {};
  if (options.order == spectral) return detail::spectral_derivative(x, d, options.spacing[d], boundary);
  auto weights = difference_weights(derivative, options.order);
  for (auto& weight : weights)
    for (int i = 0; i < derivative; ++i) weight /= options.spacing[d];
  return stencil(x, weights, dimension, boundary);
}

}  // namespace

Tensor stencil(const Tensor& x, const std::vector<double>& weights, int axis, Boundary boundary) {
  const int dimension = checked_dimension("fields::stencil", axis, x.rank());
  const auto m = static_cast<std::int64_t>(weights.size() / 2), n = global_shape(x)[dimension];
  require(weights.size() % 2 == 1, "[fields::stencil] has an odd number of weights: {}", weights.size());
  require(n >= m, "[fields::stencil] {} planes on either side of {}: {}", m, n, x);
  require(is_floating(x.dtype()) && !(x.layout() && x.layout()->has(Placement::partial)),
          "[fields::stencil] takes floating-point tensors that are no partial sums: {}", x);
  std::vector<double> reversed(weights.rbegin(), weights.rend()), opposite = weights;
  for (auto& weight : opposite) weight = -weight;
  require(boundary == Boundary::periodic || reversed == weights || reversed == opposite,
          "[fields::stencil] between walls the weights are symmetric or antisymmetric: {}", joined(weights, ", "));
  Tensor y;
  {
    const Untaped scope;
    const auto wide = with_halo(x, dimension, m, boundary);
    for (std::size_t j = 0; j < weights.size(); ++j) {
      if (weights[j] == 0) continue;
      const auto first = std::min(static_cast<std::int64_t>(j), wide.dim(dimension) - x.dim(dimension));  // 0 in an empty block
      const auto term = weights[j] * slice(wide, dimension, first, first + x.dim(dimension));
      y = y ? y + term : term;
    }
    if (!y) y = 0.0 * x.without_layout();
    y = y.with_layout(x.layout());
  }
  if (x.is_constant()) return y;
  const int split = x.layout() ? x.layout()->axis_of(dimension) : -1;
  // x_bar[i] = sum over j of weights[j] y_bar[i - j + m]. Between walls x[i] has the weights of its mirror images, too: those of
  // x[-1 - i] in y[k] are those of y[-1 - k] in x_bar[i], but for the sign of antisymmetric weights: y continues with the other
  // parity.
  const auto adjoint_boundary = reversed == weights ? boundary : of_derivative(boundary);
  Tape::record({.name = "stencil",
                .communicates = split >= 0 && x.layout()->grid->extents[static_cast<std::size_t>(split)] > 1,
                .inputs = {x},
                .outputs = {y},
                .vjp = [reversed, dimension, adjoint_boundary, layout = x.layout()](const Replay&, Inputs g) {
                  return Tensors{stencil(g[0].with_layout(layout), reversed, dimension, adjoint_boundary).without_layout()};
                }});
  return y;
}

Tensor gradient(const Tensor& x, const DifferenceOptions& options) {
  require_field("gradient", x, options), require_whole_channels("gradient", x);
  Tensors parts;
  for (std::size_t d = 0; d < 3; ++d) {
    const auto part = difference(x, d, 1, options, options.boundary[d]);
    parts.push_back(part ? part : constant(zeros_like(x)));
  }
  return concatenate(parts, 4);
}

Tensor divergence(const Tensor& x, const DifferenceOptions& options) {
  require_field("divergence", x, options), require_whole_channels("divergence", x);
  const auto channels = global_shape(x)[4] / 3;
  require(channels * 3 == global_shape(x)[4], "[fields::divergence] takes 3 C channels: {}", x);
  Tensor sum;
  for (std::size_t d = 0; d < 3; ++d) {
    const auto first = static_cast<std::int64_t>(d) * channels;
    const auto part = difference(slice(x, 4, first, first + channels), d, 1, options, of_derivative(options.boundary[d]));
    if (part) sum = sum ? sum + part : part;
  }
  return sum ? sum : 0.0 * slice(x, 4, 0, channels);
}

Tensor laplacian(const Tensor& x, const DifferenceOptions& options) {
  require_field("laplacian", x, options);
  if (options.order == spectral) return detail::by_eigenvalues("fields::laplacian", x, options, false);
  Tensor sum;
  for (std::size_t d = 0; d < 3; ++d)
    if (const auto part = difference(x, d, 2, options, options.boundary[d])) sum = sum ? sum + part : part;
  return sum ? sum : 0.0 * x;
}

Tensor poisson(const Tensor& rhs, const DifferenceOptions& options) {
  require_field("poisson", rhs, options);
  return detail::by_eigenvalues("fields::poisson", rhs, options, true);
}

}  // namespace mpigrad::fields
