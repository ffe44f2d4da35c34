#pragma once
// Ops of activations with derivatives of their own (ops/elementwise/activation_functions.h): y = f(x), xbar = ybar f'(x) by the
// op F##Adjoint, whose own cotangents are gbar f'(x) and gbar g f''(x).

#include "ops/elementwise/elementwise_ops.h"

namespace mpigrad::ops {

// Operands of equal shape, floating-point only.
template <class S>
Tensor activation_adjoint(const S& f, const Tensor& g, const Tensor& x);
template <class S>
struct AdjointOf : Function<scalar::Adjoint<S>, both> {
  static constexpr bool one_shape = true;  // operands do not broadcast
  using Ref = const Tensor&;
  Tensor first(Ref g, Ref, Ref x, Ref) const { return activation_adjoint<S>(*this, g, x); }
  Tensor second(Ref g, Ref a, Ref x, Ref) const {  // squares of float16 numbers overflow early
    const auto wide = computed_in(x.dtype());
    return cast(cast(g, wide) * cast(a, wide) * S::second(cast(x, wide)), x.dtype());
  }
};
template <class S>
Tensor activation_adjoint(const S& f, const Tensor& g, const Tensor& x) {
  AdjointOf<S> adjoint;
  static_cast<S&>(adjoint) = f;
  return mpigrad::apply(Binary<AdjointOf<S>>{adjoint}, {g, x});
}
template <class S>
struct ActivationOf : Function<S, first> {
  Tensor cotangent(const Tensor& g, const Tensor& x, const Tensor&) const { return activation_adjoint<S>(*this, g, x); }
};
#define MPIGRAD_MAKE(F, ...)         \
  using F = ActivationOf<scalar::F>; \
  using F##Adjoint = AdjointOf<scalar::F>;
MPIGRAD_DERIVED_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::ops
