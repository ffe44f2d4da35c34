#ifndef MPIGRAD_OPS_COMPLEX_COMPLEX_H
#define MPIGRAD_OPS_COMPLEX_COMPLEX_H
// Complex tensors: conversions and functions that real tensors do not have. Arithmetic (+ - * / with complex and real tensors and
// numbers, negate, abs, square), sum, mean, dot, vecdot, matmul, cast and views are declared in the same headers as for real
// tensors. All other ops refuse complex tensors with an Error that names the op.
//
// The cotangent of z is dL/d(Re z) + i dL/d(Im z), as in PyTorch (JAX returns its conjugate); that of a real tensor is real. The
// objective of gradient() is real. The inner product of a and b, which dot() returns, is Re sum conj(a) b.

#include "framework/engine/op.h"
#include "ops/complex/complex_operands.h"
#include "ops/layout_rules.h"

namespace mpigrad {

// re + i im, of one shape and type, float32 or float64.
Tensor complex(const Tensor& re, const Tensor& im);
namespace ops {

// Each is the other's transpose.
struct ViewAsReal {
  static constexpr OpTraits traits() { return {.name = "view_as_real", .takes_complex = true}; }
  Types infer(Inputs in) const;
  Cost cost(Inputs, Outputs) const { return {}; }
  LayoutPtr layout(Inputs in) const;
  Tensor view(Inputs in) const { return detail::as_numbers(in[0]); }
  Tensors vjp(const Replay&, Inputs g) const { return {view_as_complex(g[0])}; }
};
struct ViewAsComplex {
  static constexpr OpTraits traits() { return {.name = "view_as_complex"}; }
  Types infer(Inputs in) const;
  Cost cost(Inputs, Outputs) const { return {}; }
  LayoutPtr layout(Inputs in) const;
  Tensor view(Inputs in) const;
  Tensors vjp(const Replay&, Inputs g) const { return {view_as_real(g[0])}; }
};

// z = re + i im;  rebar = Re zbar, imbar = Im zbar
struct ComplexJoin {
  static constexpr OpTraits traits() { return {.name = "complex"}; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const { return elementwise_layout(traits().name, in, Elementwise::linear); }
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay&, Inputs g) const { return {real(g[0]), imag(g[0])}; }
};
// y = Re z or Im z;  zbar = ybar or i ybar
struct ComplexPart {
  bool imaginary = false;
  static constexpr OpTraits traits() { return {.name = "real/imag", .takes_complex = true}; }
  Types infer(Inputs in) const { return {{in[0].shape(), real_type(in[0].dtype())}}; }
  LayoutPtr layout(Inputs in) const { return elementwise_layout(traits().name, in, Elementwise::linear); }
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay&, Inputs g) const;
};
// w = conj(z);  zbar = conj(wbar)
struct ComplexConj {
  static constexpr OpTraits traits() { return {.name = "conj", .takes_complex = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  LayoutPtr layout(Inputs in) const { return elementwise_layout(traits().name, in, Elementwise::linear); }
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay&, Inputs g) const { return {conj(g[0])}; }
};
// w = |z|;  zbar = z wbar / |z|, 0 at 0
struct ComplexAbs {
  static constexpr OpTraits traits() { return {.name = "abs", .keeps_inputs = 1, .keeps_outputs = 1, .takes_complex = true}; }
  Types infer(Inputs in) const { return {{in[0].shape(), real_type(in[0].dtype())}}; }
  LayoutPtr layout(Inputs in) const { return elementwise_layout(traits().name, in, Elementwise::nonlinear); }
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

// w = a b, abar = conj(b) wbar, bbar = conj(a) wbar;  conjugate: w = conj(a) b, abar = conj(wbar) b, bbar = a wbar
struct ComplexProduct {
  bool conjugate = false;
  unsigned reads = 3;  // bit i: the vjp reads operand i
  static constexpr OpTraits traits() { return {.name = "multiply", .keeps_inputs = 3, .takes_complex = true}; }
  unsigned kept_inputs() const { return reads; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const { return elementwise_layout(traits().name, in, Elementwise::product); }
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
// w = z r with real r;  zbar = wbar r, rbar = Re(conj(z) wbar)
struct ComplexScale {
  unsigned reads = 3;
  static constexpr OpTraits traits() { return {.name = "multiply", .keeps_inputs = 3, .takes_complex = true}; }
  unsigned kept_inputs() const { return reads; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const { return elementwise_layout(traits().name, in, Elementwise::product); }
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
// w = a / b, abar = wbar / conj(b), bbar = -conj(w) wbar / conj(b);
// conjugate: w = a / conj(b), abar = wbar / b, bbar = -conj(wbar) w / conj(b)
struct ComplexQuotient {
  bool conjugate = false;
  static constexpr OpTraits traits() { return {.name = "divide", .keeps_inputs = 2, .keeps_outputs = 1, .takes_complex = true}; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const { return elementwise_layout(traits().name, in, Elementwise::quotient); }
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad

#endif
