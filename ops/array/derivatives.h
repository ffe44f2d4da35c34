#pragma once
// Derivatives of functions: grad, value_and_grad, jacobian, hessian and hvp, named as in JAX; jvp is in framework/engine/jvp.h.
//
// A derivative is by the argument alone: what f reads of the same tensor by itself, as a lambda's capture, is constant to it.
// Each of them is a function of tensors like f, so that it can be differentiated again: grad(grad(f)), or a tape around it. On
// several ranks objectives add up, as for Tape::gradient: the gradient is that of the sum over ranks of f, and the calls are
// collective where f communicates.

#include <functional>
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"

namespace mpigrad {

using FunctionOfTensor = std::function<Tensor(const Tensor&)>;
using FunctionOfTensors = std::function<Tensor(const std::vector<Tensor>&)>;

// x -> the gradient of f at x, with x's shape; f(x) has one element.
FunctionOfTensor grad(FunctionOfTensor f);
std::function<std::vector<Tensor>(const std::vector<Tensor>&)> grad(FunctionOfTensors f);
// x -> f(x) and its gradient.
std::function<std::pair<Tensor, Tensor>(const Tensor&)> value_and_grad(FunctionOfTensor f);
std::function<std::pair<Tensor, std::vector<Tensor>>(const std::vector<Tensor>&)> value_and_grad(FunctionOfTensors f);
// d f(x)[i] / d x[j], of the shape [f's dimensions, x's dimensions]. Runs f and its adjoint once for each element of f(x), or f
// and two adjoints for each element of x, whichever are fewer. Of local tensors only.
Tensor jacobian(const FunctionOfTensor& f, const Tensor& x);
// jacobian of grad(f): [x's dimensions, x's dimensions].
Tensor hessian(const FunctionOfTensor& f, const Tensor& x);
// The Hessian times v, without the Hessian: a gradient of <grad f(x), v>. v has x's shape.
Tensor hvp(const FunctionOfTensor& f, const Tensor& x, const Tensor& v);

}  // namespace mpigrad
