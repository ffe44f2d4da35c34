#include "ops/array/shapes.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "framework/base/joined.h"
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/layout_rules.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad {

Tensor stack(const std::vector<Tensor>& parts, int axis) {
  require(!parts.empty(), "[stack] needs at least one tensor");
  const int at = checked_dimension("stack", axis, parts.front().rank() + 1);
  std::vector<Tensor> rows;
  for (const auto& part : parts) {
    require(part.shape() == parts.front().shape(), "[stack] shapes differ: {} and {}", parts.front(), part);
    rows.push_back(unsqueeze(part, at));
  }
  return concatenate(rows, at);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int axis) {
  const int at = checked_dimension("split", axis, x.rank());
  require_whole("split", x, std::array{at});
  for (const auto size : sizes) require(size >= 0, "[split] a size is negative: {}", joined(sizes, ", "));
  require(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) == x.dim(at),
          "[split] sizes {} do not add up to the extent {} of {}", joined(sizes, ", "), x.dim(at), x);
  std::vector<Tensor> result;
  std::int64_t begin = 0;
  for (const auto size : sizes) {
    result.push_back(slice(x, at, begin, begin + size));
    begin += size;
  }
  return result;
}
std::vector<Tensor> split(const Tensor& x, std::int64_t parts, int axis) {
  const int at = checked_dimension("split", axis, x.rank());
  require(parts > 0 && x.dim(at) % parts == 0, "[split] the extent {} of {} is not a multiple of {} parts", x.dim(at), x, parts);
  return split(x, std::vector<std::int64_t>(static_cast<std::size_t>(parts), x.dim(at) / parts), at);
}

std::vector<Tensor> unbind(const Tensor& x, int axis) {
  const int at = checked_dimension("unbind", axis, x.rank());
  require_whole("unbind", x, std::array{at});
  std::vector<Tensor> result;
  for (std::int64_t i = 0; i < x.dim(at); ++i) result.push_back(squeeze(slice(x, at, i, i + 1), {at}));
  return result;
}

Tensor local::roll(const Tensor& x, std::int64_t shift, int axis) {
  const int at = checked_dimension("roll", axis, x.rank());
  require_whole("roll", x, std::array{at});
  const std::int64_t n = x.dim(at);
  const std::int64_t by = n == 0 ? 0 : ((shift % n) + n) % n;
  return by == 0 ? x : concatenate({slice(x, at, n - by, n), slice(x, at, 0, n - by)}, at);
}

Tensor repeat(const Tensor& x, std::int64_t times, int axis) {
  const int at = checked_dimension("repeat", axis, x.rank());
  require_whole("repeat", x, std::array{at});
  require(times >= 0, "[repeat] {} times", times);
  Shape wide, narrow;
  for (int d = 0; d < x.rank(); ++d) {
    wide.push_back(x.dim(d));
    narrow.push_back(d == at ? x.dim(d) * times : x.dim(d));
    if (d == at) wide.push_back(times);
  }
  return reshape(broadcast_to(unsqueeze(x, at + 1), wide), narrow);
}

Tensor tile(const Tensor& x, const std::vector<std::int64_t>& times) {
  const int rank = std::max(x.rank(), static_cast<int>(times.size())), added = rank - x.rank();
  const int ones = rank - static_cast<int>(times.size());
  Shape apart, wide, result;  // [1, n] -> [times, n] -> [times n] for each dimension
  for (int d = 0; d < rank; ++d) {
    const std::int64_t n = d < added ? 1 : x.dim(d - added), k = d < ones ? 1 : times[static_cast<std::size_t>(d - ones)];
    require(k >= 0, "[tile] {} times", k);
    if (k != 1 && d >= added) require_whole("tile", x, std::array{d - added});
    for (const auto extent : {std::int64_t{1}, n}) apart.push_back(extent);
    for (const auto extent : {k, n}) wide.push_back(extent);
    result.push_back(k * n);
  }
  return reshape(broadcast_to(reshape(x, apart), wide), result);
}

Tensor moveaxis(const Tensor& x, const std::vector<int>& from, const std::vector<int>& to) {
  require(from.size() == to.size(), "[moveaxis] {} dimensions, but {} destinations", from.size(), to.size());
  std::vector<int> order(static_cast<std::size_t>(x.rank()), -1);
  std::vector<bool> moved(static_cast<std::size_t>(x.rank()));
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto source = checked_dimension("moveaxis", from[i], x.rank()), target = checked_dimension("moveaxis", to[i], x.rank());
    require(!moved[static_cast<std::size_t>(source)] && order[static_cast<std::size_t>(target)] < 0,
            "[moveaxis] a dimension is named twice: {} to {}", joined(from, ", "), joined(to, ", "));
    moved[static_cast<std::size_t>(source)] = true;
    order[static_cast<std::size_t>(target)] = source;
  }
  int next = 0;
  for (auto& source : order) {
    if (source >= 0) continue;
    while (moved[static_cast<std::size_t>(next)]) ++next;
    source = next++;
  }
  return permute(x, order);
}
Tensor moveaxis(const Tensor& x, int from, int to) { return moveaxis(x, std::vector{from}, std::vector{to}); }

Tensor swapaxes(const Tensor& x, int a, int b) {
  std::vector<int> order(static_cast<std::size_t>(x.rank()));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<std::size_t>(checked_dimension("swapaxes", a, x.rank()))],
            order[static_cast<std::size_t>(checked_dimension("swapaxes", b, x.rank()))]);
  return permute(x, order);
}
Tensor matrix_transpose(const Tensor& x) {
  require(x.rank() >= 2, "[matrix_transpose] needs at least two dimensions: {}", x);
  return swapaxes(x, -1, -2);
}

Tensor squeeze(const Tensor& x) {
  std::vector<int> axes;
  for (int d = 0; d < x.rank(); ++d)
    if (global_shape(x)[d] == 1) axes.push_back(d);
  return axes.empty() ? x : squeeze(x, axes);
}

std::vector<Tensor> broadcast_arrays(const std::vector<Tensor>& x) {
  Shape shape;
  for (const auto& part : x) shape = broadcast_shapes("broadcast_arrays", shape, part.shape());
  std::vector<Tensor> result;
  for (const auto& part : x) result.push_back(broadcast_to(part, shape));
  return result;
}

Tensor take(const Tensor& x, const Tensor& indices, int axis) {
  const int at = checked_dimension("take", axis, x.rank());
  require_whole("take", x, std::array{at});
  return at == 0 ? take(x, indices) : moveaxis(take(moveaxis(x, at, 0), indices), 0, at);
}

Tensor take_along_axis(const Tensor& x, const Tensor& indices, int axis) {
  const int at = checked_dimension("take_along_axis", axis, x.rank());
  require_whole("take_along_axis", x, std::array{at});
  require(indices.rank() == x.rank() && indices.dtype() == DType::int64,
          "[take_along_axis] indices are int64 of {} dimensions: {}", x.rank(), indices);
  // Flattens both, so that indices name single elements. An index that is out of range along its dimension must not name another
  // element.
  const auto strides = x.shape().strides();
  const std::int64_t n = x.dim(at), outside = x.elements();
  Tensor place = where(logical_or(indices < 0, indices >= n), outside, indices * strides[static_cast<std::size_t>(at)]);
  for (int d = 0; d < x.rank(); ++d) {
    if (d == at) continue;
    require(indices.dim(d) == x.dim(d), "[take_along_axis] shapes differ outside dimension {}: {} and {}", at, x, indices);
    UseDevice use(x.device());
    Shape along;
    for (int e = 0; e < x.rank(); ++e) along.push_back(e == d ? x.dim(d) : 1);
    place = place + reshape(constant(arange(x.dim(d))) * strides[static_cast<std::size_t>(d)], along);
  }
  return reshape(take(reshape(x, Shape{x.elements()}), reshape(place, Shape{place.elements()})), indices.shape());
}

}  // namespace mpigrad
