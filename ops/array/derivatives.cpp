#include "ops/array/derivatives.h"

#include <algorithm>

#include "framework/engine/jvp.h"
#include "framework/engine/tape.h"
#include "ops/array/shapes.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

Tensor variable(const Tensor& x) {
  require(is_floating(x.dtype()), "[grad] derivatives are taken with respect to floating-point tensors: {}", x);
  return detail::argument_of(x);
}
// Element i of a tensor like y is 1, the others are 0.
Tensor basis(const Tensor& y, std::int64_t i) {
  UseDevice device(y.device());
  return reshape(cast(arange(y.elements()) == i, y.dtype()), y.shape()).as_variable();
}
Shape joined_shapes(const Shape& a, const Shape& b) {
  Shape result = a;
  for (int d = 0; d < b.rank(); ++d) result.push_back(b[d]);
  return result;
}

}  // namespace

std::function<std::pair<Tensor, std::vector<Tensor>>(const std::vector<Tensor>&)> value_and_grad(FunctionOfTensors f) {
  return [f = std::move(f)](const std::vector<Tensor>& x) {
    std::vector<Tensor> at;
    for (const auto& part : x) at.push_back(variable(part));
    Tape tape;
    const Tensor y = f(at);
    require(y.elements() == 1 && is_floating(y.dtype()), "[grad] f gives one floating-point number, not {}", y);
    // If f did not compute its result from x, the derivative is 0; Tape::gradient() would report an error.
    const bool known = std::any_of(tape.entries().begin(), tape.entries().end(), [&](const Tape::Entry& entry) {
      return std::any_of(entry.outputs.begin(), entry.outputs.end(), [&](const Tensor& z) { return z && z.id() == y.id(); });
    });
    return std::pair(y, known ? tape.gradient(y, at) : tape.vjp({y}, {ones_like(y)}, at));
  };
}
std::function<std::pair<Tensor, Tensor>(const Tensor&)> value_and_grad(FunctionOfTensor f) {
  const auto both = value_and_grad(FunctionOfTensors([f = std::move(f)](const std::vector<Tensor>& x) { return f(x[0]); }));
  return [both](const Tensor& x) {
    auto [y, gradients] = both({x});
    return std::pair(y, gradients[0]);
  };
}
std::function<std::vector<Tensor>(const std::vector<Tensor>&)> grad(FunctionOfTensors f) {
  return [both = value_and_grad(std::move(f))](const std::vector<Tensor>& x) { return both(x).second; };
}
FunctionOfTensor grad(FunctionOfTensor f) {
  return [both = value_and_grad(std::move(f))](const Tensor& x) { return both(x).second; };
}

Tensor jacobian(const FunctionOfTensor& f, const Tensor& x) {
  const Tensor at = variable(x);
  require(!at.layout(), "[jacobian] works on local tensors only: {}", x);
  const auto row = [&](std::int64_t i, Tensor& y) {
    Tape tape;
    y = f(at);
    require(!y.layout() && is_floating(y.dtype()), "[jacobian] f gives local floating-point tensors, not {}", y);
    if (y.elements() == 0) return zeros_like(at);
    return tape.vjp({y}, {basis(y, i)}, {at})[0];
  };
  Tensor y;
  std::vector<Tensor> parts{row(0, y)};
  const Shape shape = joined_shapes(y.shape(), at.shape());
  if (shape.elements() == 0) {
    UseDevice device(x.device());
    return zeros(shape, y.dtype());
  }
  if (y.elements() <= 2 * at.elements()) {
    for (std::int64_t i = 1; i < y.elements(); ++i) parts.push_back(row(i, y));
    return reshape(stack(parts), shape);
  }
  parts.clear();
  for (std::int64_t j = 0; j < at.elements(); ++j) parts.push_back(reshape(jvp(f, at, basis(at, j)), {y.elements()}));
  return reshape(stack(parts, 1), shape);
}

Tensor hessian(const FunctionOfTensor& f, const Tensor& x) { return jacobian(grad(f), x); }

Tensor hvp(const FunctionOfTensor& f, const Tensor& x, const Tensor& v) {
  require(x.type() == v.type(), "[hvp] x and v are of one type: {} and {}", x, v);
  const Tensor at = variable(x);
  Tape tape;
  const Tensor gradient = grad(f)(at);
  return tape.vjp({gradient}, {v}, {at})[0];
}

}  // namespace mpigrad
