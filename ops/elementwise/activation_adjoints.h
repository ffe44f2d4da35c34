#pragma once
// Functions shared by the vjps of several ops, in addition to the public functions. `may_overwrite`: g is the cotangent passed to
// the vjp, which does not read it again; the result then uses its memory.

#include "framework/tensor/tensor.h"
#include "ops/elementwise/activation_functions.h"

namespace mpigrad {

// y <= 0 ? factor * g : g; the adjoint of a fused activation, given its result.
Tensor leaky_relu_adjoint(const Tensor& g, const Tensor& y, scalar::Fused fused, bool may_overwrite = false);

// Given y = fused(x + bias) and its cotangent g: the cotangent of x, which is factor g where y <= 0 and g elsewhere, and the
// cotangent of the bias, which is the sum of the former over the rows.
struct BiasActivationCotangents {
  Tensor x, bias;
};
struct BiasActivationAdjointOptions {
  bool of_bias = true;  // if false, no cotangent of the bias is computed
  bool may_overwrite = false;
};
BiasActivationCotangents bias_activation_adjoint(const Tensor& g, const Tensor& y, scalar::Fused fused,
                                                 const BiasActivationAdjointOptions& options = {});

}  // namespace mpigrad
