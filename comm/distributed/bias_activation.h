#pragma once
// Parameters beside distributed tensors: a bias with an activation, and what every op does with its weights.

#include "framework/tensor/tensor.h"
#include "ops/elementwise/activation.h"

namespace mpigrad {

// activation(x + bias), bias [C] or none.
Tensor bias_activation(const Tensor& x, const Tensor& bias, Activation activation);
// w for use beside x's local part: replicated over the axes along which x varies, and float32 cast to x's type if that has 16
// bits. Once per tape, x's type and axes: a weight that is used twice is cast once.
Tensor parameter_for(const Tensor& x, const Tensor& w);

namespace spatial {
// float32 rounded to a type of 16 bits; else x. Once per tape.
Tensor rounded(const Tensor& x, DType dtype);
}  // namespace spatial

}  // namespace mpigrad
