#include "ops/pool/pool_ops.h"

#include <algorithm>

#include "framework/base/joined.h"
#include "ops/array/padding.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad {
namespace ops {
namespace {

Types resized(std::string_view op, const Tensor& x, const Extent3& from, const Extent3& to) {
  require(x.rank() == 5 && is_floating(x.dtype()), "[{}] needs a floating-point [N, D, H, W, C]: {}", op, x);
  if (spatial_extent(x) != from) fail("[{}] expected extent ({}): {}", op, joined(from, ", "), x);
  return {{Shape{x.dim(0), to[0], to[1], to[2], x.dim(4)}, x.dtype()}};
}

}  // namespace

Types AvgPool::infer(Inputs in) const { return resized(traits().name, in[0], window.in, window.out); }
Tensors AvgPool::vjp(const Replay&, Inputs g) const { return {mpigrad::apply(AvgPoolAdjoint{window}, {g[0]})}; }

Types AvgPoolAdjoint::infer(Inputs in) const { return resized(traits().name, in[0], window.out, window.in); }
Tensors AvgPoolAdjoint::vjp(const Replay&, Inputs g) const { return {mpigrad::apply(AvgPool{window}, {g[0]})}; }

namespace {

TensorType signs_type(const Tensor& x, const Extent3& extent) {
  return {Shape{x.dim(0), extent[0], extent[1], extent[2], (x.dim(4) + 7) / 8}, DType::uint8};
}
void require_signs(std::string_view op, const Tensor& x, const Extent3& extent, const Tensor& signs) {
  require(signs.type() == signs_type(x, extent), "[{}] the signs belong to another tensor: {} for {}", op, signs, x);
}

}  // namespace

Types LeakyAvgPool::infer(Inputs in) const {
  auto types = resized(traits().name, in[0], window.in, window.out);
  types.push_back(signs_type(in[0], window.in));
  return types;
}
Tensors LeakyAvgPool::vjp(const Replay& at, Inputs g) const {
  return {mpigrad::apply(LeakyAvgPoolAdjoint{window, fused}, {g[0], at.output(1)})};
}

Types LeakyAvgPoolAdjoint::infer(Inputs in) const {
  auto types = resized(traits().name, in[0], window.out, window.in);
  require_signs(traits().name, in[0], window.in, in[1]);
  return types;
}
Tensors LeakyAvgPoolAdjoint::vjp(const Replay& at, Inputs g) const {
  return {mpigrad::apply(SignedAvgPool{window, fused}, {g[0], at.input(1)}), {}};
}

Types SignedAvgPool::infer(Inputs in) const {
  auto types = resized(traits().name, in[0], window.in, window.out);
  require_signs(traits().name, in[0], window.in, in[1]);
  return types;
}
Tensors SignedAvgPool::vjp(const Replay& at, Inputs g) const {
  return {mpigrad::apply(LeakyAvgPoolAdjoint{window, fused}, {g[0], at.input(1)}), {}};
}

Types MaxPool::infer(Inputs in) const {
  auto types = resized(traits().name, in[0], window.in, window.out);
  types.push_back({types[0].shape, DType::int32});
  return types;
}
Tensors MaxPool::vjp(const Replay& at, Inputs g) const { return {mpigrad::apply(MaxPoolScatter{window}, {g[0], at.output(1)})}; }

Types MaxPoolScatter::infer(Inputs in) const { return resized(traits().name, in[0], window.out, window.in); }
Tensors MaxPoolScatter::vjp(const Replay& at, Inputs g) const {
  return {mpigrad::apply(MaxPoolGather{window}, {g[0], at.input(1)}), {}};
}

Types MaxPoolGather::infer(Inputs in) const { return resized(traits().name, in[0], window.in, window.out); }
Tensors MaxPoolGather::vjp(const Replay& at, Inputs g) const {
  return {mpigrad::apply(MaxPoolScatter{window}, {g[0], at.input(1)}), {}};
}

}  // namespace ops

namespace {

ops::Window window_of(const Tensor& x, const PoolAttributes& a) {
  require(x.rank() == 5, "[pool] needs [N, D, H, W, C]: {}", x);
  require_window("pool", a.kernel, a.stride, a.dilation);
  const auto in = spatial_extent(x);
  return {a.kernel, a.stride, a.dilation, a.padding.low, in, pool_outputs(in, a)};
}

}  // namespace

Extent3 pool_outputs(const Extent3& unpadded, const PoolAttributes& a) {
  const auto copies = copies_of(a.padding), rest = without_copies(a.padding);
  Extent3 out{}, extent = unpadded;
  for (std::size_t i = 0; i < 3; ++i) {
    extent[i] += copies.low[i] + copies.high[i];
    const auto room = extent[i] + rest.low[i] + rest.high[i] - a.dilation[i] * (a.kernel[i] - 1) - 1;
    if (room < 0) {  // the window is larger than the padded input: in ceil mode it is a first, partial one
      out[i] = a.ceil_mode && room + a.stride[i] > 0 && extent[i] > 0 ? 1 : 0;
      continue;
    }
    out[i] = room / a.stride[i] + 1;
    if (a.ceil_mode && room % a.stride[i] != 0 && out[i] * a.stride[i] < extent[i] + rest.low[i]) ++out[i];
  }
  return out;
}

std::vector<double> avg_pool_scale(std::int64_t n, int dimension, const PoolAttributes& a, std::int64_t first,
                                   std::int64_t last) {
  const auto i = static_cast<std::size_t>(dimension);
  std::vector<double> scale;
  for (std::int64_t o = first; o < last; ++o) {
    std::int64_t count = 0;
    for (std::int64_t t = 0; t < a.kernel[i]; ++t) {
      const auto at = o * a.stride[i] - a.padding.low[i] + t * a.dilation[i];
      if (a.count_include_pad ? at < n + a.padding.high[i] : at >= 0 && at < n) ++count;
    }
    scale.push_back(static_cast<double>(a.kernel[i]) / static_cast<double>(std::max<std::int64_t>(count, 1)));
  }
  return scale;
}

Tensor with_divisors(Tensor y, const Extent3& in, const PoolAttributes& a, const Extent3& first, const Extent3& last) {
  for (std::size_t i = 0; i < 3; ++i) {
    const auto scale = avg_pool_scale(in[i], static_cast<int>(i), a, first[i], last[i]);
    if (std::all_of(scale.begin(), scale.end(), [](double value) { return value == 1; })) continue;
    Shape shape{1, 1, 1, 1, 1};
    shape[static_cast<int>(i) + 1] = static_cast<std::int64_t>(scale.size());
    UseDevice device(y.device());
    y = y * constant(from_vector(shape, scale, y.dtype()));
  }
  return y;
}

namespace {

// pooling(pad(x), the rest of the padding).
template <class Pooling>
auto of_padded(const Tensor& x, PoolAttributes a, const Pooling& pooling) {
  const Tensor padded = local::pad(x, copies_of(a.padding));
  a.padding = without_copies(a.padding);
  return pooling(padded, a);
}

}  // namespace

Tensor local::avg_pool(const Tensor& x, const PoolAttributes& a) {
  if (adds_copies(a.padding)) return of_padded(x, a, avg_pool);
  const auto window = window_of(x, a);
  return with_divisors(mpigrad::apply(ops::AvgPool{window}, {x}), window.in, a, {0, 0, 0}, window.out);
}

Tensor local::activated_avg_pool(const Tensor& x, Activation activation, const PoolAttributes& a) {
  if (activation.is_none()) return avg_pool(x, a);
  if (!activation.is_fused()) return avg_pool(activate(x, activation), a);
  if (adds_copies(a.padding))
    return of_padded(x, a, [&](const Tensor& y, const PoolAttributes& rest) { return activated_avg_pool(y, activation, rest); });
  const auto window = window_of(x, a);
  return with_divisors(mpigrad::apply(ops::LeakyAvgPool{window, activation.fused()}, {x}), window.in, a, {0, 0, 0}, window.out);
}

std::pair<Tensor, Tensor> max_pool_with_winner(const Tensor& x, const PoolAttributes& a) {
  if (adds_copies(a.padding)) return of_padded(x, a, max_pool_with_winner);
  auto both = apply_all(ops::MaxPool{window_of(x, a)}, {x});
  return {both[0], both[1]};
}

Tensor local::max_pool(const Tensor& x, const PoolAttributes& a) { return max_pool_with_winner(x, a).first; }

}  // namespace mpigrad
