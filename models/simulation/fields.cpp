#include "models/simulation/fields.h"

#include <algorithm>

#include "comm/distributed/grid.h"
#include "comm/halos/exchange.h"
#include "ops/elementwise/elementwise.h"
#include "ops/extents.h"
#include "ops/views/views.h"

namespace mpigrad::fields {
namespace {

// The local x with m more planes on either side of `dimension`.
Tensor with_halo(const Tensor& x, int dimension, std::int64_t m) {
  const auto local = x.without_layout();
  const auto n = global_shape(x)[dimension];
  const int axis = x.layout() ? x.layout()->axis_of(dimension) : -1;
  if (axis < 0 || x.layout()->grid->extents[static_cast<std::size_t>(axis)] == 1)
    return concatenate({slice(local, dimension, n - m, n), local, slice(local, dimension, 0, m)}, dimension);
  const auto& grid = grid_of(*x.layout());
  // The box's part of the planes [begin - m + by, end + m + by), for the block [begin, end) of each rank: by = 0 gives those next
  // to the block, n those before the box and -n those after it.
  const auto block = [&](int rank) { return x.layout()->box(rank); };
  const auto planes = [&](const auto& shift) {
    auto plan = std::make_shared<BoxPlan>();
    for (const int rank : grid.members({axis})) {
      auto& need = plan->need.emplace_back(plan->have.emplace_back(block(rank)));
      auto &begin = need.begin[dimension], &end = need.end[dimension];
      const bool any = begin < end;
      const auto by = shift(begin);
      begin = any ? std::clamp(begin - m + by, std::int64_t{0}, n) : 0;
      end = any ? std::clamp(end + m + by, std::int64_t{0}, n) : 0;
    }
    return exchange(local, grid.along({axis}), plan);
  };
  const auto inside = planes([](auto) { return std::int64_t{0}; });
  const auto own = block(grid.rank);
  const auto low = [&](std::int64_t begin) { return begin < m; };
  bool both = false;  // whether a block is that close to either end
  for (const int rank : grid.members({axis})) {
    const auto box = block(rank);
    both = both || (low(box.begin[dimension]) && box.end[dimension] + m > n);
  }
  if (!both) {
    const auto wrapped = planes([&](std::int64_t begin) { return low(begin) ? n : -n; });
    return concatenate(low(own.begin[dimension]) ? Tensors{wrapped, inside} : Tensors{inside, wrapped}, dimension);
  }
  const auto before = planes([&](auto) { return n; });
  const auto after = planes([&](auto) { return -n; });
  return concatenate({before, inside, after}, dimension);
}

void require_field(const char* op, const Tensor& x, const DifferenceOptions& options) {
  require(x.rank() == 5, "[fields::{}] takes [N, D, H, W, C]: {}", op, x);
  for (const double spacing : options.spacing) require(spacing > 0, "[fields::{}] the spacing is positive: {}", op, spacing);
}

// Derivative number `derivative` along spatial dimension d; no tensor for an extent of 1.
Tensor difference(const Tensor& x, std::size_t d, int derivative, const DifferenceOptions& options) {
  const int dimension = static_cast<int>(d) + 1;
  auto weights = difference_weights(derivative, options.order);
  if (global_shape(x)[dimension] == 1) return {};
  for (auto& weight : weights)
    for (int i = 0; i < derivative; ++i) weight /= options.spacing[d];
  return stencil(x, weights, dimension);
}

}  // namespace

Tensor stencil(const Tensor& x, const std::vector<double>& weights, int axis) {
  const int dimension = checked_dimension("fields::stencil", axis, x.rank());
  const auto m = static_cast<std::int64_t>(weights.size() / 2), n = global_shape(x)[dimension];
  require(weights.size() % 2 == 1, "[fields::stencil] has an odd number of weights: {}", weights.size());
  require(n >= m, "[fields::stencil] {} planes on either side of {}: {}", m, n, x);
  require(is_floating(x.dtype()) && !(x.layout() && x.layout()->has(Placement::partial)),
          "[fields::stencil] takes floating-point tensors that are no partial sums: {}", x);
  Tensor y;
  {
    const Untaped scope;
    const auto wide = with_halo(x, dimension, m);
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
  // x_bar[i] = sum over j of weights[j] y_bar[i - j + m]
  Tape::record({.name = "stencil",
                .communicates = split >= 0 && x.layout()->grid->extents[static_cast<std::size_t>(split)] > 1,
                .inputs = {x},
                .outputs = {y},
                .vjp = [reversed = std::vector<double>(weights.rbegin(), weights.rend()), dimension, layout = x.layout()](
                           const Replay&, Inputs g) {
                  return Tensors{stencil(g[0].with_layout(layout), reversed, dimension).without_layout()};
                }});
  return y;
}

Tensor gradient(const Tensor& x, const DifferenceOptions& options) {
  require_field("gradient", x, options);
  Tensors parts;
  for (std::size_t d = 0; d < 3; ++d) {
    const auto part = difference(x, d, 1, options);
    parts.push_back(part ? part : constant(zeros_like(x)));
  }
  return concatenate(parts, 4);
}

Tensor divergence(const Tensor& x, const DifferenceOptions& options) {
  require_field("divergence", x, options);
  const auto channels = global_shape(x)[4] / 3;
  require(channels * 3 == global_shape(x)[4], "[fields::divergence] takes 3 C channels: {}", x);
  Tensor sum;
  for (std::size_t d = 0; d < 3; ++d) {
    const auto first = static_cast<std::int64_t>(d) * channels;
    const auto part = difference(slice(x, 4, first, first + channels), d, 1, options);
    if (part) sum = sum ? sum + part : part;
  }
  return sum ? sum : 0.0 * slice(x, 4, 0, channels);
}

Tensor laplacian(const Tensor& x, const DifferenceOptions& options) {
  require_field("laplacian", x, options);
  Tensor sum;
  for (std::size_t d = 0; d < 3; ++d)
    if (const auto part = difference(x, d, 2, options)) sum = sum ? sum + part : part;
  return sum ? sum : 0.0 * x;
}

std::vector<double> difference_weights(int derivative, int order) {
  require((derivative == 1 || derivative == 2) && order >= 2 && order <= 8 && order % 2 == 0,
          "[fields] first and second derivatives have orders 2, 4, 6 and 8: derivative {}, order {}", derivative, order);
  const int m = order / 2;
  std::vector<double> weights(static_cast<std::size_t>(order + 1), 0.0);
  const auto at = [&](int j) -> double& { return weights[static_cast<std::size_t>(m + j)]; };
  // (-1)^(j + 1) m!^2 / ((m - j)! (m + j)!), divided by j, or by j^2 / 2
  double factor = -1;
  for (int j = 1; j <= m; ++j) {
    factor *= -static_cast<double>(m - j + 1) / (m + j);
    at(j) = derivative == 1 ? factor / j : 2 * factor / (j * j);
    at(-j) = derivative == 1 ? -at(j) : at(j);
    if (derivative == 2) at(0) -= 2 * at(j);
  }
  return weights;
}

}  // namespace mpigrad::fields
