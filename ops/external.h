#pragma once
// Ops that a program makes at run time from its own functions: a solver's step, a library's call, a whole simulation with its own
// messages. In contrast to an op's struct (framework/engine/op.h) nothing is known at compile time.

#include <functional>
#include <memory>
#include <string>

#include "framework/engine/op.h"

namespace mpigrad {

struct ExternalOptions {
  // Types of the outputs from the inputs; throws an Error if these do not fit. Default: one output, of the type of input 0.
  std::function<Types(Inputs x)> infer{};
  // True if the functions exchange data with other ranks: the op is then replayed on all of them, with zeros where no cotangent
  // arrived. All ranks call it in the same order.
  bool communicates = false;
  // True if the functions accept tensors on a GPU; otherwise such tensors are refused.
  bool runs_on_gpu = false;
  // Bit i: the adjoint reads the elements of input (output) i. Only the first 32 inputs and the first 32 outputs can be kept.
  unsigned keeps_inputs = ~0U, keeps_outputs = 0;
  // Layout of the outputs for distributed inputs, of which the functions see this rank's blocks. Default: an Error.
  std::function<LayoutPtr(Inputs x)> layout{};
};

namespace detail {
struct ExternalFunction;
}

// An op; copies are the same op.
class External {
 public:
  // The outputs for these inputs: runs the function, and records it like any op. Errors, which name the op: inputs that `infer`
  // refuses; outputs whose types differ from its result; a device or a layout that the options do not allow. Exceptions of the
  // functions pass through unchanged.
  Tensors operator()(Tensors x) const;
  const std::string& name() const;  // as errors and the tape have it

 private:
  friend External make_external(detail::ExternalFunction function);
  std::shared_ptr<const detail::ExternalFunction> function_;
};

// The outputs already exist, with the types from `infer`; the function fills them through mutable_data<T>(). It may instead
// assign another tensor of the same type to y[i]; if that tensor is over memory of the program (Tensor::over()), it is copied.
using ExternalForward = std::function<void(Inputs x, Outputs y)>;
// A hand-written adjoint: adds to xbar[i], which is zero at first, the cotangent of input i, given the cotangents of the outputs.
// `at` has the inputs and outputs that are kept, and at.wants(i). Integer tensors have no cotangents: their handles are empty.
using ExternalAdjoint = std::function<void(const Replay& at, Inputs ybar, Outputs xbar)>;

// The op y = f(x) with a hand-written adjoint: a first derivative only. A second derivative is refused with an Error that names
// the op. jvp() is refused, too, because it differentiates the adjoint. adjoint_check() with .second = false checks the adjoint,
// and so does taylor_test().
//
// Both functions run without recording, on the thread that calls the op or gradient(), maybe after the caller's function has
// returned: what they refer to must live as long as tapes that have recorded the op.
External external(std::string name, ExternalForward forward, ExternalAdjoint adjoint, ExternalOptions options = {});
// The same with a vjp that is written in ops, external ones included: it has derivatives of every order that these ops have. It
// returns a cotangent for each input, empty for integer tensors.
External external(std::string name, ExternalForward forward, Vjp vjp, ExternalOptions options = {});

}  // namespace mpigrad
