#pragma once
// What vjps of several ops are written in, beside the public functions. `may_overwrite`: g is the cotangent that a vjp was given,
// which does not read it again; the result then takes its memory.

#include "framework/tensor/tensor.h"

namespace mpigrad {

// y <= 0 ? slope * g : g; the adjoint of leaky_relu, given its result.
Tensor leaky_relu_adjoint(const Tensor& g, const Tensor& y, double slope, bool may_overwrite = false);

// Given y = leaky_relu(x + bias, slope) and its cotangent g: those of x, which is slope g where y <= 0 and g elsewhere, and of
// the bias, the sum of that over the rows.
struct BiasActivationCotangents {
  Tensor x, bias;
};
struct BiasActivationAdjointOptions {
  bool of_bias = true;  // else the bias has none
  bool may_overwrite = false;
};
BiasActivationCotangents bias_activation_adjoint(const Tensor& g, const Tensor& y, double slope,
                                                 const BiasActivationAdjointOptions& options = {});

}  // namespace mpigrad
