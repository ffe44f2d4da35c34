#pragma once
// Parameters used with distributed tensors: a bias with an activation, and the preparation of weights for every op.

#include "framework/tensor/tensor.h"
#include "ops/elementwise/activation.h"

namespace mpigrad {

// activation(x + bias), bias [C] or none.
Tensor bias_activation(const Tensor& x, const Tensor& bias, Activation activation);
// w prepared for use with x's local part: replicated over the axes along which x varies, and float32 cast to x's type if x has 16
// bits. Cached per tape, x's type and axes: a weight that is used twice is cast once.
Tensor parameter_for(const Tensor& x, const Tensor& w);

namespace spatial {
// x cast from float32 to a 16-bit type; x itself otherwise. Cached per tape.
Tensor rounded(const Tensor& x, DType dtype);
}  // namespace spatial

}  // namespace mpigrad
