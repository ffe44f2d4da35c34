#pragma once
// What vjps of several ops are written in, beside the public functions. `may_overwrite`: g is the cotangent that a vjp was given,
// which does not read it again; the result then takes its memory.

#include "framework/tensor/tensor.h"
#include "ops/elementwise/activation_functions.h"

namespace mpigrad {

// y <= 0 ? factor * g : g; the adjoint of a fused activation, given its result.
Tensor leaky_relu_adjoint(const Tensor& g, const Tensor& y, scalar::Fused fused, bool may_overwrite = false);

// Given y = fused(x + bias) and its cotangent g: those of x, which is factor g where y <= 0 and g elsewhere, and of the bias,
// the sum of that over the rows.
struct BiasActivationCotangents {
  Tensor x, bias;
};
struct BiasActivationAdjointOptions {
  bool of_bias = true;  // else the bias has none
  bool may_overwrite = false;
};
BiasActivationCotangents bias_activation_adjoint(const Tensor& g, const Tensor& y, scalar::Fused fused,
                                                 const BiasActivationAdjointOptions& options = {});

}  // namespace mpigrad
