#ifndef MPIGRAD_OPS_ELEMENTWISE_ACTIVATION_H
#define MPIGRAD_OPS_ELEMENTWISE_ACTIVATION_H
// Activations; and a bias per channel with a fused activation in one pass, with both cotangents in another pass. The channels are
// the last dimension, all others are rows.

#include "framework/engine/op.h"
#include "ops/elementwise/activation_type.h"

namespace mpigrad {

// Applies the activation as an op of its own; returns x for `none`.
Tensor activate(const Tensor& x, Activation activation);

// f(the activation's kernel parameters) if kernels compute the activation; else f(none), followed by the activation as an op.
template <class F>
Tensor fused_or_behind(Activation activation, F&& f) {
  return activation.is_fused() ? f(activation.fused()) : activate(f(scalar::Fused{}), activation);
}

// A function for each constant of Activation: gelu(x), silu(x), ...; others are in elementwise.h.
Tensor elu(const Tensor& x, double alpha = 1);
#define MPIGRAD_MAKE(F, name, ...) Tensor name(const Tensor& x);
MPIGRAD_PLAIN_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

namespace local {
// activation(x + bias); bias [C] or none.
Tensor bias_activation(const Tensor& x, const Tensor& bias, Activation activation);
}  // namespace local

namespace ops {

struct BiasActivation {
  scalar::Fused fused{};
  static constexpr OpTraits traits() { return {.name = "bias_activation", .keeps_outputs = 1, .takes_half = true}; }
  unsigned kept_outputs() const { return fused.is_none() ? 0 : 1; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

// (g, y) -> (h, s): h = y <= 0 ? factor g : g, s = sum over rows of h;  gbar = (hbar + sbar), factor times that where
// y <= 0
struct BiasActivationAdjoint {
  scalar::Fused fused{};
  bool in_place = false;  // h takes the memory of g
  static constexpr OpTraits traits() { return {.name = "bias_activation_adjoint", .keeps_inputs = 2, .takes_half = true}; }
  Types infer(Inputs in) const;
  Tensor reuse(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad

#endif
