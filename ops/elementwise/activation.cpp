#include "ops/elementwise/activation.h"

#include "ops/elementwise/activation_adjoints.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"

namespace mpigrad {

Tensor activate(const Tensor& x, Activation activation) {
  return activation == Activation::none ? x : leaky_relu(x, activation.slope());
}
namespace ops {

Types BiasActivation::infer(Inputs in) const {
  const auto &x = in[0], &bias = in[1];
  require(x.rank() >= 1 && is_floating(x.dtype()), "[{}] needs floating-point elements, channels last: {}", traits().name, x);
  require(bias.type() == TensorType{Shape{x.dim(-1)}, x.dtype()}, "[{}] bias has one element for each of {} channels: {} for {}",
          traits().name, x.dim(-1), bias, x);
  require(slope >= 0, "[{}] the slope is not negative, got {}", traits().name, slope);
  return {x.type()};
}
Tensors BiasActivation::vjp(const Replay& at, Inputs g) const {
  auto inner = bias_activation_adjoint(g[0], at.output(0), slope, {.of_bias = at.wants(1), .may_overwrite = true});
  return {std::move(inner.x), std::move(inner.bias)};
}

Types BiasActivationAdjoint::infer(Inputs in) const {
  const auto &g = in[0], &y = in[1];
  require(g.rank() >= 1 && is_floating(g.dtype()), "[{}] needs floating-point elements, channels last: {}", traits().name, g);
  require(g.type() == y.type(), "[{}] the cotangent differs from what it belongs to: {} and {}", traits().name, g, y);
  return {g.type(), {Shape{g.dim(-1)}, g.dtype()}};
}
Tensor BiasActivationAdjoint::reuse(Inputs in) const {
  return in_place ? Tensor(in[0].type(), in[0].storage(), in[0].offset()) : Tensor();
}
Tensors BiasActivationAdjoint::vjp(const Replay& at, Inputs bar) const {
  return {leaky_relu_adjoint(bar[0] + bar[1], at.input(1), slope), {}};
}

}  // namespace ops

Tensor local::bias_activation(const Tensor& x, const Tensor& bias, double slope) {
  if (!bias) return slope == 1 ? x : leaky_relu(x, slope);
  return mpigrad::apply(ops::BiasActivation{slope}, {x, bias});
}

BiasActivationCotangents bias_activation_adjoint(const Tensor& g, const Tensor& y, double slope,
                                                 const BiasActivationAdjointOptions& o) {
  if (slope != 1 && o.of_bias) {
    const bool in_place = o.may_overwrite && sole_owner(g);  // before the call makes a copy of the handle
    const auto both = apply_all(ops::BiasActivationAdjoint{slope, in_place}, {g, y});
    return {both[0], both[1]};
  }
  const auto inner = slope == 1 ? g : leaky_relu_adjoint(g, y, slope, o.may_overwrite);
  if (!o.of_bias) return {inner, {}};
  std::vector<int> rows;
  for (int d = 0; d + 1 < g.rank(); ++d) rows.push_back(d);
  return {inner, sum(inner, rows)};
}

}  // namespace mpigrad
