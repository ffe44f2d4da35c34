#ifndef MPIGRAD_FRAMEWORK_ENGINE_JVP_H
#define MPIGRAD_FRAMEWORK_ENGINE_JVP_H
// Jacobian-vector products, computed by reverse passes only.

#include <functional>

#include "framework/engine/op.h"

namespace mpigrad {

// A function of several tensors to several tensors, written in ops.
using TensorFunction = std::function<Tensors(const Tensors&)>;

// J v = d/dt f(x + t v) at t = 0, of the types of f(x); zeros for outputs that carry no derivative.
//
//   f   runs once, under a tape of this call's; it may communicate
//   x   the point; floating-point tensors. Tensors that f reads other than its arguments are constants
//   v   the direction, of the types of x. If ranks hold one tensor together, each passes its part
//
// J^T u is linear in u, and its own transpose is J: the vjp of u -> J^T u with the cotangent v ("double backward", the trick of
// J. Townsend, 2017). Costs one run of f and two replays. With a tape around this call the result can be differentiated again.
// Collective over all ranks that f communicates with. Errors: lengths or types of x and v differ.
Tensors jvp(const TensorFunction& f, const Tensors& x, const Tensors& v);
// The same for one tensor.
Tensor jvp(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, const Tensor& v);

namespace detail {
// x under a new identity, from which cotangents flow back to x: a derivative with respect to the result treats other uses of x as
// constants. The result for a constant x is a variable, so that derivatives with respect to it exist.
Tensor argument_of(const Tensor& x);
}  // namespace detail

}  // namespace mpigrad

#endif
