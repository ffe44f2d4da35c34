#ifndef MPIGRAD_FRAMEWORK_ENGINE_JVP_H
#define MPIGRAD_FRAMEWORK_ENGINE_JVP_H
// Derivatives along a direction, from reverse passes alone.

#include <functional>

#include "framework/engine/op.h"

namespace mpigrad {

// Several tensors to several tensors, written in ops.
using TensorFunction = std::function<Tensors(const Tensors&)>;

// J v = d/dt f(x + t v) at t = 0, of the types of f(x); zeros for outputs that carry no derivative.
//
//   f   runs once, under a tape of this call's; it may communicate
//   x   where; floating-point tensors. What f reads of them beside its arguments is constant
//   v   the direction, of x's types. Of ranks that hold one tensor together each hands in its part
//
// J^T u is linear in u, and its own transpose is J: the vjp of u -> J^T u with the cotangent v ("double backward", the trick of
// J. Townsend, 2017). Costs f and two replays. Under a tape around this call the result can be differentiated again. Collective
// over all ranks that f communicates with. Errors: lengths or types of x and v differ.
Tensors jvp(const TensorFunction& f, const Tensors& x, const Tensors& v);
// The same of one tensor.
Tensor jvp(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, const Tensor& v);

namespace detail {
// x under a new identity, from which cotangents flow back to x: what else a function reads of x is a constant to a derivative by
// the result. Of a constant a variable, as which derivatives by it are taken.
Tensor argument_of(const Tensor& x);
}  // namespace detail

}  // namespace mpigrad

#endif
