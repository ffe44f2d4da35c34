#pragma once
// Moving a tensor between devices.

#include "framework/engine/op.h"

namespace mpigrad {

// The same elements on another device; x itself if it is there already. The cotangent travels back. A copy from a GPU blocks the
// host. A tensor without elements stays on the dry device; other tensors cannot be moved there.
Tensor to(const Tensor& x, DeviceKind device);

namespace ops {

// y = x on `device`;  xbar = ybar on the device of x
struct ToDevice {
  DeviceKind device = DeviceKind::cpu;
  static constexpr OpTraits traits() { return {.name = "to", .takes_complex = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  LayoutPtr layout(Inputs in) const { return in[0].layout(); }
  Tensor view(Inputs in) const {
    return in[0].device() == DeviceKind::dry ? Tensor(in[0].type(), DeviceKind::dry) : detail::copied(in[0], device);
  }
  Tensors vjp(const Replay& at, Inputs g) const { return {to(g[0], at.input(0).device())}; }
};

}  // namespace ops
}  // namespace mpigrad
