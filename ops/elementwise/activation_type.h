#ifndef MPIGRAD_OPS_ELEMENTWISE_ACTIVATION_TYPE_H
#define MPIGRAD_OPS_ELEMENTWISE_ACTIVATION_TYPE_H
// The activation of a layer: its kind and its parameter.

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/base/error.h"
#include "ops/elementwise/activation_functions.h"

namespace mpigrad {

#define MPIGRAD_MAKE(F, name, ...) name,
enum class ActivationKind : std::uint8_t {
  none,
  relu,
  leaky_relu,
  MPIGRAD_COMPOSED_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE) MPIGRAD_DERIVED_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE)
};
#undef MPIGRAD_MAKE

// A function of each element that a layer applies to its result:
//
//   Activation::none, ::relu, ::leaky_relu(slope), ::elu(alpha), ::gelu (by erf), ::gelu_tanh (PyTorch's approximate="tanh"),
//   ::silu, ::sigmoid, ::tanh, ::softplus, ::hard_swish
//
// None, ReLU and LeakyReLU are fused: kernels of convolutions, linear layers, norms and pooling compute them in their own pass.
// Any other activation is an op of its own after the layer's op.
class Activation {
 public:
#define MPIGRAD_MAKE(F, name, ...) , name
  static const Activation none, relu MPIGRAD_COMPOSED_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE)
                                    MPIGRAD_PLAIN_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE);
#undef MPIGRAD_MAKE
  // x <= 0 ? slope x : x, slope >= 0; slope 0 is `relu`, slope 1 is `none`.
  static constexpr Activation leaky_relu(double slope = 0.01) {
    if (!(slope >= 0)) fail("[leaky_relu] the slope is not negative, got {}", slope);
    return {slope == 0 ? ActivationKind::relu : slope == 1 ? ActivationKind::none : ActivationKind::leaky_relu, slope};
  }
  // x <= 0 ? alpha (exp(x) - 1) : x
  static constexpr Activation elu(double alpha = 1) { return {ActivationKind::elu, alpha}; }

  constexpr ActivationKind kind() const { return kind_; }
  // The slope of none, ReLU and LeakyReLU, the alpha of ELU; 0 where there is none.
  constexpr double parameter() const { return parameter_; }
  constexpr bool is_none() const { return kind_ == ActivationKind::none; }
  constexpr bool is_fused() const { return kind_ <= ActivationKind::leaky_relu; }
  // The parameters that kernels take; fused activations only.
  constexpr scalar::Fused fused() const {
    if (!is_fused()) fail("[activation] no kernel computes activation {} in its own pass", static_cast<int>(kind_));
    return {parameter_};
  }
  constexpr bool operator==(const Activation&) const = default;

 private:
  constexpr Activation(ActivationKind kind, double parameter) : kind_(kind), parameter_(parameter) {}
  ActivationKind kind_;
  double parameter_;
};
inline constexpr Activation Activation::none{ActivationKind::none, 1}, Activation::relu{ActivationKind::relu, 0};
#define MPIGRAD_MAKE(F, name, ...) inline constexpr Activation Activation::name{ActivationKind::name, 0};
MPIGRAD_COMPOSED_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE)
MPIGRAD_PLAIN_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

std::string_view name_of(ActivationKind kind);
std::string to_string(Activation activation);  // "relu", "leaky_relu(0.01)"
// The inverse of to_string(); "leaky_relu" and "elu" have the parameters of PyTorch. Error: any other text.
Activation activation_of(std::string_view text);

}  // namespace mpigrad

#endif
