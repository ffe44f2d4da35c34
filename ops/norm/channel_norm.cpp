#include "ops/norm/channel_norm.h"

#include <limits>
#include <optional>

#include "ops/elementwise/activation.h"
#include "ops/elementwise/activation_adjoints.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"

namespace mpigrad {
namespace ops {
namespace {

void require_channels(std::string_view op, const Tensor& x) {
  require(x.rank() >= 1 && is_floating(x.dtype()), "[{}] needs floating-point elements, channels last: {}", op, x);
}
void require_per_channel(std::string_view op, const Tensor& x, const Tensor& v) {
  require(v.type() == TensorType{Shape{x.dim(-1)}, computed_in(x.dtype())} ||
              (x.rank() >= 2 && v.type() == TensorType{Shape{x.dim(0), x.dim(-1)}, computed_in(x.dtype())}),
          "[{}] one {}value for each of {} channels: {} for {}", op, is_half(x.dtype()) ? "float32 " : "", x.dim(-1), v, x);
}

// g a per channel, in g's type
Tensor per_channel(const Tensor& g, const Tensor& a) {
  if (g.dtype() == a.dtype() && a.rank() == 1) return g * a;
  const auto zero = constant(zeros_like(a));
  return channel_affine(g, zero, a, zero);
}

}  // namespace

ChannelRows channel_rows(const Tensor& x, bool per_sample) {
  const auto channels = x.dim(-1), rows = channels > 0 ? x.elements() / channels : 0;
  const auto groups = per_sample ? x.dim(0) : 1;
  return {groups, groups > 0 ? rows / groups : 0, channels};
}

Types ChannelMoments::infer(Inputs in) const {
  require_channels(traits().name, in[0]);
  require(!per_sample || in[0].rank() >= 2, "[{}] samples of channels are [N, ..., C]: {}", traits().name, in[0]);
  const auto channels = in[0].dim(-1);
  const TensorType type{per_sample ? Shape{in[0].dim(0), channels} : Shape{channels}, computed_in(in[0].dtype())};
  return {type, type};
}
Tensors ChannelMoments::vjp(const Replay& at, Inputs g) const {
  const auto& x = at.input(0);
  const auto rows = static_cast<double>(channel_rows(x, per_sample).rows);
  return {channel_affine(x, at.output(0), g[1] * 2, g[0] / std::max(1.0, rows))};
}

Types ChannelAffine::infer(Inputs in) const {
  require_channels(traits().name, in[0]);
  for (const auto& v : in.subspan(1)) {
    require_per_channel(traits().name, in[0], v);
    require(v.shape() == in[1].shape(), "[{}] values for channels differ: {} and {}", traits().name, in[1], v);
  }
  return {in[0].type()};
}
Tensors ChannelAffine::vjp(const Replay& at, Inputs g) const {
  const auto &x = at.input(0), &m = at.input(1), &a = at.input(2);
  const auto inner = fused.is_none() ? g[0] : leaky_relu_adjoint(g[0], at.output(0), fused, true);
  Tensors result(4);
  if (at.wants(0)) result[0] = per_channel(inner, a);
  if (at.wants(1) || at.wants(2) || at.wants(3)) {
    const auto dots = apply_all(ChannelDots{}, {inner, x, m});
    if (at.wants(1)) result[1] = -(a * dots[0]);
    result[2] = dots[1];
    result[3] = dots[0];
  }
  return result;
}

Types ChannelDots::infer(Inputs in) const {
  require_channels(traits().name, in[0]);
  require(in[0].type() == in[1].type(), "[channel_dots] operands differ: {} and {}", in[0], in[1]);
  require_per_channel(traits().name, in[0], in[2]);
  return {in[2].type(), in[2].type()};
}
Tensors ChannelDots::vjp(const Replay& at, Inputs bar) const {
  const auto &g = at.input(0), &x = at.input(1), &m = at.input(2);
  const auto &s_bar = bar[0], &d_bar = bar[1];
  return {at.wants(0) ? channel_affine(x, m, d_bar, s_bar) : Tensor(), at.wants(1) ? per_channel(g, d_bar) : Tensor(),
          at.wants(2) ? -(d_bar * at.output(0)) : Tensor()};
}

Types NormAdjoint::infer(Inputs in) const {
  require_channels(traits().name, in[1]);
  require(in[0].type() == in[1].type(), "[norm_adjoint] the cotangent and the input have different types: {} and {}", in[0],
          in[1]);
  for (const auto& v : in.subspan(2)) {
    require_per_channel(traits().name, in[1], v);
    require(v.shape() == in[2].shape(), "[{}] values for channels differ: {} and {}", traits().name, in[2], v);
  }
  return {in[0].type(), in[2].type(), in[2].type()};
}
Tensor NormAdjoint::reuse(Inputs in) const { return in_place ? Tensor(in[0].type(), in[0].storage(), in[0].offset()) : Tensor(); }

}  // namespace ops

Moments channel_moments(const Tensor& x, bool per_sample) {
  auto both = apply_all(ops::ChannelMoments{per_sample}, {x});
  return {both[0], both[1]};
}

Tensor channel_affine(const Tensor& x, const Tensor& m, const Tensor& a, const Tensor& b, Activation activation) {
  return fused_or_behind(activation, [&](auto fused) { return mpigrad::apply(ops::ChannelAffine{fused}, {x, m, a, b}); });
}

namespace {

// For finite inputs: an infinite variance would make the normalised values 0. A GPU kernel sets such a variance to NaN.
void require_variance(const Tensor& x, const Tensor& variance) {
  if (x.device() != DeviceKind::cpu) return;
  visit_floating(variance.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto* values = variance.data<T>();
    for (std::int64_t i = 0; i < variance.elements(); ++i)
      if (values[i] == std::numeric_limits<T>::infinity())
        fail(
            "[normalise] channel {}: the variance is infinite in {}: the numbers of the input are too large, as in a diverging "
            "training; make them or the learning rate smaller, or compute in float64: {}",
            i % x.dim(-1), name_of(variance.dtype()), x);
  });
}

}  // namespace

Tensor local::normalise(const Tensor& x, const BatchNormStatistics& statistics, const Tensor& gamma, const Tensor& beta,
                        double epsilon, Activation activation) {
  if (!activation.is_fused()) return activate(normalise(x, statistics, gamma, beta, epsilon), activation);
  require_variance(x, statistics.variance);
  const Tensors in{x, statistics.mean, gamma * pow(statistics.variance + epsilon, -0.5), beta};
  const ops::ChannelAffine affine{activation.fused()};
  auto y = mpigrad::apply(affine, in);
  remember(affine, in, y);
  return y;
}

namespace {

// The cotangents of x, gamma and beta, computed by differentiable ops.
Tensors norm_cotangents(const Tensor& g, const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon,
                        scalar::Fused fused, bool per_sample) {
  const auto rows = std::max(1.0, static_cast<double>(ops::channel_rows(x, per_sample).rows));
  const auto moments = channel_moments(x, per_sample);
  const auto r = pow(moments.m2 / rows + epsilon, -0.5), a = gamma * r;
  const auto zero = constant(zeros_like(a));
  auto h = g;
  if (!fused.is_none())
    h = leaky_relu_adjoint(g, mpigrad::apply(ops::ChannelAffine{fused}, {x, moments.mean, a, beta + zero}), fused);
  const auto dots = apply_all(ops::ChannelDots{}, {h, x, moments.mean});
  const auto each = a / -rows;
  const auto of_channels = [&](const Tensor& v) { return per_sample ? sum(v, {0}) : v; };
  return {channel_affine(h, zero, a, zero) + channel_affine(x, moments.mean, each * square(r) * dots[1], each * dots[0]),
          of_channels(r * dots[1]), of_channels(dots[0])};
}

}  // namespace

std::pair<Tensor, BatchNormStatistics> local::norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon,
                                                   Activation activation, bool per_sample) {
  if (!activation.is_fused()) {
    auto [y, statistics] = norm(x, gamma, beta, epsilon, Activation::none, per_sample);
    return {activate(y, activation), statistics};
  }
  const auto fused = activation.fused();
  // The tape records the statistics for other users; the entry of y accounts for their part in the derivative of y.
  const auto moments = channel_moments(x, per_sample);
  const auto rows = static_cast<double>(ops::channel_rows(x, per_sample).rows);
  const BatchNormStatistics statistics{moments.mean, moments.m2 / std::max(1.0, rows)};
  require_variance(x, statistics.variance);
  // gamma and beta of other shapes use separate ops and their vjps.
  const Shape channels{x.dim(-1)};
  const bool records = Tape::recording() && gamma.shape() == channels && beta.shape() == channels &&
                       !(x.is_constant() && gamma.is_constant() && beta.is_constant());
  Tensors in;
  Tensor inverse, y;
  {
    std::optional<Untaped> untaped;
    if (records) untaped.emplace();
    inverse = pow(statistics.variance + epsilon, -0.5);
    const auto shift = per_sample ? beta + constant(zeros_like(inverse)) : beta;
    in = {x, statistics.mean, gamma * inverse, shift};
    y = mpigrad::apply(ops::ChannelAffine{fused}, in);
  }
  for (auto& t : in) t = t.as_constant();
  remember(ops::ChannelAffine{fused}, in, y);
  if (!records) return {y, statistics};
  Tape::record({.name = "norm",
                .keeps_inputs = 7,
                .inputs = {x, gamma, beta},
                .outputs = {y},
                .vjp = [=, m = in[1], a = in[2], b = in[3], r = inverse.as_constant()](const Replay& at, Inputs g) -> Tensors {
                  const auto &from = at.input(0), &scale = at.input(1), &shift = at.input(2);
                  if (Tape::recording()) return norm_cotangents(g[0], from, scale, shift, epsilon, fused, per_sample);
                  const bool in_place = sole_owner(g[0]);  // checked before the call copies the handle
                  auto found = apply_all(ops::NormAdjoint{fused, in_place}, {g[0], from, m, a, b, r});
                  const auto of_channels = [&](const Tensor& v) { return per_sample ? sum(v, {0}) : v; };
                  return {std::move(found[0]), at.wants(1) ? of_channels(r * found[2]) : Tensor(),
                          at.wants(2) ? of_channels(found[1]) : Tensor()};
                }});
  return {y, statistics};
}

}  // namespace mpigrad
