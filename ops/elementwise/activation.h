#ifndef MPIGRAD_OPS_ELEMENTWISE_ACTIVATION_H
#define MPIGRAD_OPS_ELEMENTWISE_ACTIVATION_H
// A bias for each channel and LeakyReLU in one pass, and both their cotangents in another. The channels are the last dimension,
// all others are rows.

#include "framework/engine/op.h"

namespace mpigrad {

// What a layer applies to its result in the same pass: x <= 0 ? slope x : x.
class Activation {
 public:
  static const Activation none, relu;
  static constexpr Activation leaky_relu(double slope) { return Activation(slope); }  // slope >= 0
  constexpr double slope() const { return slope_; }                                   // 1 is none, 0 is ReLU
  constexpr bool operator==(const Activation&) const = default;

 private:
  constexpr explicit Activation(double slope) : slope_(slope) {}
  double slope_;
};
inline constexpr Activation Activation::none{1}, Activation::relu{0};

namespace local {
// leaky_relu(x + bias, slope); bias [C] or none, slope 1 is no activation.
Tensor bias_activation(const Tensor& x, const Tensor& bias, double slope);
inline Tensor bias_activation(const Tensor& x, const Tensor& bias, Activation activation) {
  return bias_activation(x, bias, activation.slope());
}
}  // namespace local

// The activation by itself; x where it is none.
Tensor activate(const Tensor& x, Activation activation);

namespace ops {

struct BiasActivation {
  double slope = 1;
  static constexpr OpTraits traits() { return {.name = "bias_activation", .keeps_outputs = 1}; }
  unsigned kept_outputs() const { return slope == 1 ? 0 : 1; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

// (g, y) -> (h, s): h = y <= 0 ? slope g : g, s = sum over rows of h;  gbar = (hbar + sbar), slope times that where
// y <= 0
struct BiasActivationAdjoint {
  double slope = 1;
  bool in_place = false;  // h takes the memory of g
  static constexpr OpTraits traits() { return {.name = "bias_activation_adjoint", .keeps_inputs = 2}; }
  Types infer(Inputs in) const;
  Tensor reuse(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad

#endif
