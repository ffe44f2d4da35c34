#ifndef MPIGRAD_OPS_CONV_CONV_H
#define MPIGRAD_OPS_CONV_CONV_H
// Convolution (cross-correlation) as three ops: forward, data and weight are the partial derivatives of one trilinear form,
//
//   T(x, w, g) = sum_{n,o,t,c,k} x[n, o stride + t dilation - low, c] w[k, t, c] g[n, o, k],
//
// and each one's vjp is the other two. x: [N, D, H, W, C], w: [K, kd, kh, kw, C/groups], g and y: [N, D', H', W', K]. The three
// have one floating-point type. Except on GPUs, w may also be float32 with x and g of 16 bits: kernels that compute in bfloat16
// round w, without a copy in memory, others use it as it is, and its cotangent is not rounded.

#include <optional>

#include "framework/engine/op.h"
#include "ops/elementwise/activation.h"
#include "ops/extents.h"

namespace mpigrad {

struct ConvAttributes {
  Triple stride = 1, dilation = 1;
  Padding padding = 0;
  std::int64_t groups = 1;
  Activation activation = Activation::none;  // for conv() of comm/distributed/distributed.h, not for the functions below
};

namespace local {
// y = dT/dg.  D' = floor((D + low + high - dilation (kd - 1) - 1) / stride) + 1;  a kernel that does not fit is refused. With a
// padding mode other than zeros: the convolution of pad(x, padding), ops/array/padding.h.
Tensor conv(const Tensor& x, const Tensor& w, const ConvAttributes& attributes = {});
}  // namespace local
// xbar = dT/dx, which has the spatial extent `extent`; for padding with zeros. As a forward op it is the transposed convolution.
Tensor conv_data(const Tensor& g, const Tensor& w, const Extent3& extent, const ConvAttributes& attributes = {});
// wbar = dT/dw, which has the kernel extent `kernel`, and the type `type` or, by default, that of x; for padding with zeros.
Tensor conv_weight(const Tensor& x, const Tensor& g, const Extent3& kernel, const ConvAttributes& attributes = {},
                   std::optional<DType> type = std::nullopt);
namespace local {
// activation(conv(x, w) + bias), in one pass where the activation is fused; bias [K] or none.
Tensor conv_bias_activation(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation,
                            const ConvAttributes& attributes = {});
}  // namespace local

// Transposed convolution: x: [N, D, H, W, C], w: [C, kd, kh, kw, K/groups] -> [N, D', H', W', K],
// D' = (D - 1) stride - low - high + dilation (kd - 1) + output_padding + 1. In each mode it is the adjoint of the convolution
// with the same padding. What lies beyond an end is dropped with mode zeros, and added to the opposite end with mode circular.
// With the modes replicate, reflect and symmetric it is added to the elements from which pad() copies. (PyTorch's transposed
// convolution has the mode zeros only.)
struct ConvTransposeAttributes {
  Triple stride = 1, dilation = 1;
  Padding padding = 0;
  Triple output_padding = 0;
  std::int64_t groups = 1;
  Activation activation = Activation::none;  // for conv_transpose() of comm/distributed/distributed.h only
};
namespace local {
// The transposed convolution of one block, without activation. Errors: an activation in `attributes`, channels of x and w that
// differ, channels that are not a multiple of the groups, padding that leaves no output or copies more elements than there are.
Tensor conv_transpose(const Tensor& x, const Tensor& w, const ConvTransposeAttributes& attributes = {});
}  // namespace local

Extent3 spatial_extent(const Tensor& x);  // dimensions 1 to 3
// Refuses a kernel larger than the padded input. Any kernel fits an empty input, whose outputs are empty.
void require_kernel_fits(std::string_view op, const Extent3& extent, const Extent3& kernel, const ConvAttributes& attributes);

namespace ops {

struct Conv {
  ConvAttributes a;
  static constexpr OpTraits traits() { return {.name = "conv", .keeps_inputs = 3, .takes_half = true}; }
  Types infer(Inputs in) const;
  Cost cost(Inputs in, Outputs out) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

struct ConvData {
  ConvAttributes a;
  Extent3 extent{};
  static constexpr OpTraits traits() { return {.name = "conv_data", .keeps_inputs = 3, .takes_half = true}; }
  Types infer(Inputs in) const;
  Cost cost(Inputs in, Outputs out) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

struct ConvWeight {
  ConvAttributes a;
  Extent3 kernel{};
  std::optional<DType> type{};  // of the result; none: that of x
  static constexpr OpTraits traits() { return {.name = "conv_weight", .keeps_inputs = 3, .takes_half = true}; }
  Types infer(Inputs in) const;
  Cost cost(Inputs in, Outputs out) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

struct ConvBiasActivation {
  ConvAttributes a;
  scalar::Fused fused{};
  static constexpr OpTraits traits() { return {.name = "conv_bias_activation", .keeps_inputs = 3, .takes_half = true}; }
  unsigned kept_outputs() const { return fused.is_none() ? 0 : 1; }
  Types infer(Inputs in) const;
  Cost cost(Inputs in, Outputs out) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad

#endif
