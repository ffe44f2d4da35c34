#pragma once
// Derivatives of functions: grad, value_and_grad, jacobian, hessian and hvp, named as in JAX; jvp is in framework/engine/jvp.h.
//
// A derivative is taken with respect to the argument only: if f also reads the same tensor directly, for example as a lambda's
// capture, that read is constant. Each derivative is a function of tensors like f and can be differentiated again: grad(grad(f)),
// or a tape around it. On several ranks objectives add up, as for Tape::gradient: the gradient is that of the sum over ranks of
// f, and the calls are collective where f communicates.

#include <functional>
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"

namespace mpigrad {

using FunctionOfTensor = std::function<Tensor(const Tensor&)>;
using FunctionOfTensors = std::function<Tensor(const std::vector<Tensor>&)>;

// x -> the gradient of f at x, with x's shape; f(x) must have one element.
FunctionOfTensor grad(FunctionOfTensor f);
std::function<std::vector<Tensor>(const std::vector<Tensor>&)> grad(FunctionOfTensors f);
// x -> f(x) and its gradient.
std::function<std::pair<Tensor, Tensor>(const Tensor&)> value_and_grad(FunctionOfTensor f);
std::function<std::pair<Tensor, std::vector<Tensor>>(const std::vector<Tensor>&)> value_and_grad(FunctionOfTensors f);
// d f(x)[i] / d x[j], of shape [f's dimensions, x's dimensions]. Runs f and its adjoint once per element of f(x), or f and two
// adjoints per element of x, whichever is fewer. Local tensors only.
Tensor jacobian(const FunctionOfTensor& f, const Tensor& x);
// jacobian of grad(f): [x's dimensions, x's dimensions].
Tensor hessian(const FunctionOfTensor& f, const Tensor& x);
// The Hessian times v without computing the Hessian: the gradient of <grad f(x), v>. v has x's shape.
Tensor hvp(const FunctionOfTensor& f, const Tensor& x, const Tensor& v);

}  // namespace mpigrad
