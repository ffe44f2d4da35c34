#include "ops/conv/conv.h"

#include "framework/base/joined.h"
#include "ops/array/padding.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/activation_adjoints.h"

namespace mpigrad {
namespace ops {
namespace {

void require_five(std::string_view op, const Tensor& a, const Tensor& b) {
  require(a.rank() == 5 && b.rank() == 5, "[{}] operands have five dimensions, channels last: {} and {}", op, a, b);
}

// True if a weight may have this type together with x or g.
bool takes_weight(const Tensor& x, DType type) {
  return is_floating(x.dtype()) &&
         (type == x.dtype() || (is_half(x.dtype()) && type == DType::float32 && x.device() != DeviceKind::cuda));
}

void require_operands(std::string_view op, const Tensor& x, const Tensor& w) {
  require_five(op, x, w);
  require(takes_weight(x, w.dtype()), "[{}] operands are floating-point of one type{}: {} and {}", op,
          is_half(x.dtype()) && x.device() != DeviceKind::cuda ? ", or the weight is float32" : "", x, w);
}

Shape with_spatial(std::int64_t first, const Extent3& extent, std::int64_t last) {
  return {first, extent[0], extent[1], extent[2], last};
}

Extent3 outputs(const Extent3& extent, const Extent3& kernel, const ConvAttributes& a) {
  Extent3 result{};
  for (std::size_t i = 0; i < 3; ++i)
    result[i] = window_outputs(extent[i], kernel[i], a.stride[i], a.dilation[i], a.padding.low[i], a.padding.high[i]);
  return result;
}

void require_channels(std::string_view op, const Tensor& x, const Tensor& w, std::int64_t groups) {
  require(groups > 0 && w.dim(4) * groups == x.dim(4),
          "[{}] weight has {} input channels, input has {}: input {}, weight {}, groups {}", op, w.dim(4) * groups, x.dim(4),
          x.shape(), w.shape(), groups);
  require(w.dim(0) % groups == 0, "[{}] {} output channels are not a multiple of {} groups: weight {}", op, w.dim(0), groups,
          w.shape());
}

// Two operations per element of y, kernel tap and input channel of a group.
Cost multiply_add_cost(const Tensor& y, const Tensor& w, Inputs in, Outputs out) {
  Cost cost{2.0 * static_cast<double>(y.elements()) * static_cast<double>(w.elements() / std::max<std::int64_t>(1, w.dim(0))), 0};
  for (const auto& x : in)
    if (x) cost.bytes += static_cast<double>(x.bytes());
  for (const auto& x : out) cost.bytes += static_cast<double>(x.bytes());
  return cost;
}

// The cotangents of the input and the weight. The weight's is computed first: only it needs the input, which may be the largest
// tensor of a network and can then make room for its own cotangent.
Tensors cotangents_of_conv(const Replay& at, const Tensor& g, const ConvAttributes& a) {
  const auto &x = at.input(0), &w = at.input(1);
  Tensors result(2);
  if (at.wants(1)) result[1] = conv_weight(x, g, spatial_extent(w), a, w.dtype());
  at.give_up(0);
  if (at.wants(0)) result[0] = conv_data(g, w, spatial_extent(x), a);
  return result;
}

}  // namespace

Types Conv::infer(Inputs in) const {
  const auto &x = in[0], &w = in[1];
  require_operands(traits().name, x, w);
  require_channels(traits().name, x, w, a.groups);
  require_window(traits().name, spatial_extent(w), a.stride, a.dilation);
  return {{with_spatial(x.dim(0), outputs(spatial_extent(x), spatial_extent(w), a), w.dim(0)), x.dtype()}};
}
Cost Conv::cost(Inputs in, Outputs out) const { return multiply_add_cost(out[0], in[1], in, out); }
Tensors Conv::vjp(const Replay& at, Inputs g) const { return cotangents_of_conv(at, g[0], a); }

Types ConvData::infer(Inputs in) const {
  const auto &g = in[0], &w = in[1];
  require_operands(traits().name, g, w);
  require_window(traits().name, spatial_extent(w), a.stride, a.dilation);
  require(g.dim(4) == w.dim(0), "[conv_data] cotangent has {} channels, weight has {}: {} and {}", g.dim(4), w.dim(0), g, w);
  require(a.groups > 0 && w.dim(0) % a.groups == 0, "[conv_data] {} channels are not a multiple of {} groups: weight {}",
          w.dim(0), a.groups, w);
  if (outputs(extent, spatial_extent(w), a) != spatial_extent(g))
    fail("[conv_data] extent ({}) does not give outputs of the shape of {} with weight {}", joined(extent, ", "), g, w);
  return {{with_spatial(g.dim(0), extent, w.dim(4) * a.groups), g.dtype()}};
}
Cost ConvData::cost(Inputs in, Outputs out) const { return multiply_add_cost(in[0], in[1], in, out); }
Tensors ConvData::vjp(const Replay& at, Inputs bar) const {
  const auto &g = at.input(0), &w = at.input(1);
  return {at.wants(0) ? mpigrad::apply(Conv{a}, {bar[0], w}) : Tensor(),
          at.wants(1) ? conv_weight(bar[0], g, spatial_extent(w), a, w.dtype()) : Tensor()};
}

Types ConvWeight::infer(Inputs in) const {
  const auto &x = in[0], &g = in[1];
  require_five(traits().name, x, g);
  require(x.dtype() == g.dtype() && is_floating(x.dtype()), "[conv_weight] operands are floating-point of one type: {} and {}", x,
          g);
  require(!type || takes_weight(x, *type), "[conv_weight] the result has the operands' type{}, not {}: {} and {}",
          x.device() != DeviceKind::cuda ? " or, of 16-bit operands, float32" : "", type ? name_of(*type) : "", x, g);
  require_window(traits().name, kernel, a.stride, a.dilation);
  if (!(x.dim(0) == g.dim(0) && outputs(spatial_extent(x), kernel, a) == spatial_extent(g)))
    fail("[conv_weight] kernel ({}) does not map {} to {}", joined(kernel, ", "), x, g);
  require(a.groups > 0 && x.dim(4) % a.groups == 0 && g.dim(4) % a.groups == 0,
          "[conv_weight] channels are not multiples of {} groups: {} and {}", a.groups, x, g);
  return {{with_spatial(g.dim(4), kernel, x.dim(4) / a.groups), type.value_or(x.dtype())}};
}
Cost ConvWeight::cost(Inputs in, Outputs out) const { return multiply_add_cost(in[1], out[0], in, out); }
Tensors ConvWeight::vjp(const Replay& at, Inputs bar) const {
  const auto &x = at.input(0), &g = at.input(1);
  return {at.wants(0) ? conv_data(g, bar[0], spatial_extent(x), a) : Tensor(),
          at.wants(1) ? mpigrad::apply(Conv{a}, {x, bar[0]}) : Tensor()};
}

Types ConvBiasActivation::infer(Inputs in) const {
  const auto result = Conv{a}.infer(in.first(2));
  if (in[2])
    require(in[2].type() == TensorType{Shape{in[1].dim(0)}, in[0].dtype()},
            "[{}] bias has one element for each of {} output channels, of the input's type {}: {}", traits().name, in[1].dim(0),
            name_of(in[0].dtype()), in[2]);
  return result;
}
Cost ConvBiasActivation::cost(Inputs in, Outputs out) const { return multiply_add_cost(out[0], in[1], in, out); }
Tensors ConvBiasActivation::vjp(const Replay& at, Inputs g) const {
  const auto inner = bias_activation_adjoint(g[0], at.output(0), fused, {.of_bias = at.wants(2), .may_overwrite = true});
  auto result = cotangents_of_conv(at, inner.x, a);
  result.push_back(inner.bias);
  return result;
}

}  // namespace ops

Extent3 spatial_extent(const Tensor& x) { return {x.dim(1), x.dim(2), x.dim(3)}; }

void require_kernel_fits(std::string_view op, const Extent3& extent, const Extent3& kernel, const ConvAttributes& a) {
  for (std::size_t i = 0; i < 3; ++i) {
    const auto padded = extent[i] + a.padding.low[i] + a.padding.high[i], reach = a.dilation[i] * (kernel[i] - 1) + 1;
    if (!(extent[i] == 0 || reach <= padded))
      fail(
          "[{}] the kernel reaches over {} elements, the padded input has {} in dimension {}: input ({}), kernel ({}), padding "
          "({}) and ({}), dilation ({})",
          op, reach, padded, i + 1, joined(extent, ", "), joined(kernel, ", "), joined(a.padding.low, ", "),
          joined(a.padding.high, ", "), joined(a.dilation, ", "));
  }
}

namespace {
// Ops must not ignore an activation or a padding mode silently.
const ConvAttributes& for_op(std::string_view op, const ConvAttributes& a) {
  require(a.activation == Activation::none, "[{}] has no activation; use conv() or local::conv_bias_activation()", op);
  require(!adds_copies(a.padding), "[{}] has no padding modes; use conv(), conv_transpose() or pad()", op);
  return a;
}
ConvAttributes without_copies(ConvAttributes a) {
  a.padding = mpigrad::without_copies(a.padding);
  return a;
}
}  // namespace

Tensor local::conv(const Tensor& x, const Tensor& w, const ConvAttributes& a) {
  if (adds_copies(a.padding)) return conv(pad(x, copies_of(a.padding)), w, without_copies(a));
  if (!x.layout() && x.rank() == 5 && w.rank() == 5) require_kernel_fits("conv", spatial_extent(x), spatial_extent(w), a);
  return mpigrad::apply(ops::Conv{for_op("conv", a)}, {x, w});
}
Tensor conv_data(const Tensor& g, const Tensor& w, const Extent3& extent, const ConvAttributes& a) {
  return mpigrad::apply(ops::ConvData{for_op("conv_data", a), extent}, {g, w});
}
Tensor conv_weight(const Tensor& x, const Tensor& g, const Extent3& kernel, const ConvAttributes& a, std::optional<DType> type) {
  return mpigrad::apply(ops::ConvWeight{for_op("conv_weight", a), kernel, type}, {x, g});
}
Tensor local::conv_bias_activation(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation,
                                   const ConvAttributes& a) {
  if (adds_copies(a.padding)) return conv_bias_activation(pad(x, copies_of(a.padding)), w, bias, activation, without_copies(a));
  return fused_or_behind(activation, [&](auto fused) {
    if (!bias && fused.is_none()) return conv(x, w, a);
    return mpigrad::apply(ops::ConvBiasActivation{for_op("conv_bias_activation", a), fused}, {x, w, bias});
  });
}

Tensor local::conv_transpose(const Tensor& x, const Tensor& w, const ConvTransposeAttributes& a) {
  ops::require_operands("conv_transpose", x, w);
  if (adds_copies(a.padding)) {
    auto whole = a;
    whole.padding = mpigrad::without_copies(a.padding);
    return unpad(conv_transpose(x, w, whole), copies_of(a.padding));
  }
  require(a.activation == Activation::none, "[conv_transpose] local::conv_transpose() has no activation");
  require_window("conv_transpose", spatial_extent(w), a.stride, a.dilation);
  require(x.dim(4) == w.dim(0), "[conv_transpose] input has {} channels, weight takes {}: {} and {}", x.dim(4), w.dim(0), x, w);
  require(a.groups > 0 && w.dim(0) % a.groups == 0, "[conv_transpose] {} channels are not a multiple of {} groups: weight {}",
          w.dim(0), a.groups, w);
  Extent3 extent{};
  ConvAttributes forward{
      .stride = a.stride, .dilation = a.dilation, .padding = mpigrad::without_copies(a.padding), .groups = a.groups};
  for (std::size_t i = 0; i < 3; ++i) {
    const int d = static_cast<int>(i) + 1;
    // Output padding of a stride or more only widens the right edge; it is subtracted from the right padding, which keeps the
    // shapes consistent.
    extent[i] = (x.dim(d) - 1) * a.stride[i] - a.padding.low[i] - a.padding.high[i] + a.dilation[i] * (w.dim(d) - 1) +
                a.output_padding[i] + 1;
    require(extent[i] >= 0 && x.dim(d) > 0, "[conv_transpose] padding leaves nothing in dimension {}: {} and {}", d, x, w);
    forward.padding.high[i] -= a.output_padding[i];
  }
  return conv_data(x, w, extent, forward);
}

}  // namespace mpigrad
