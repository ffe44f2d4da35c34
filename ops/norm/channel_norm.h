#ifndef MPIGRAD_OPS_NORM_CHANNEL_NORM_H
#define MPIGRAD_OPS_NORM_CHANNEL_NORM_H
// Statistics and normalisation per channel. The last dimension is channels; all other positions are rows. Statistics run over the
// rows of all samples (result [C]) or of each sample separately (result [N, C]). Per-channel values have the type that x is
// computed in: float32 for 16-bit activations, whose variance would lose all digits in 16 bits.

#include "framework/engine/op.h"
#include "ops/elementwise/activation_type.h"

namespace mpigrad {

struct Moments {
  Tensor mean, m2;  // [C] or [N, C] each; m2 = sum (x - mean)^2, zeros where there are no rows
};
// The moments of x, [..., C], over all rows, or with per_sample over the rows of each sample of x, [N, ..., C]. Errors: elements
// that are not floating-point numbers, too few dimensions.
Moments channel_moments(const Tensor& x, bool per_sample = false);
// activation((x - m) a + b) per channel; m, a, b: [C], or [N, C]
Tensor channel_affine(const Tensor& x, const Tensor& m, const Tensor& a, const Tensor& b,
                      Activation activation = Activation::none);

struct BatchNormStatistics {
  Tensor mean, variance;  // [C], or [N, C]; biased variance
};
namespace local {
// activation((x - mean) / sqrt(variance + epsilon) * gamma + beta) with given statistics. On a CPU an infinite variance is an
// Error, because all results would be 0. On a GPU there is no check; there channel_moments() returns NaN on overflow.
Tensor normalise(const Tensor& x, const BatchNormStatistics& statistics, const Tensor& gamma, const Tensor& beta, double epsilon,
                 Activation activation = Activation::none);
// The same with the statistics of x itself, of all samples together or of each; they are returned too. The vjp takes two passes.
std::pair<Tensor, BatchNormStatistics> norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon,
                                            Activation activation = Activation::none, bool per_sample = false);
}  // namespace local

namespace ops {

// x as rows of channels, in one group or in one group per sample.
struct ChannelRows {
  std::int64_t groups, rows, channels;
};
ChannelRows channel_rows(const Tensor& x, bool per_sample);

// mean = sum x / n, M2 = sum (x - mean)^2;  xbar = meanbar / n + 2 (x - mean) M2bar
struct ChannelMoments {
  bool per_sample = false;
  static constexpr OpTraits traits() {
    return {.name = "channel_moments", .keeps_inputs = 1, .keeps_outputs = 1, .takes_half = true};
  }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

// z = (x - m) a + b, y = f(z), f fused;  zbar = ybar f'(z) (f' computed from y),  xbar = zbar a,  abar = sum zbar (x - m),
// bbar = sum zbar,  mbar = -a bbar
struct ChannelAffine {
  scalar::Fused fused{};
  static constexpr OpTraits traits() { return {.name = "channel_affine", .keeps_inputs = 7, .takes_half = true}; }
  unsigned kept_outputs() const { return fused.is_none() ? 0 : 1; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

// s = sum g,  d = sum g (x - m);  gbar = sbar + dbar (x - m),  xbar = g dbar,  mbar = -dbar s
struct ChannelDots {
  static constexpr OpTraits traits() {
    return {.name = "channel_dots", .keeps_inputs = 7, .keeps_outputs = 1, .takes_half = true};
  }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

// The vjp of local::norm(). Inputs: g and x; m, a = gamma r, b, r = (variance + epsilon)^-1/2 per channel, with m and r from the
// statistics of x. With n rows and z = (x - m) a + b:  h = g f'(z),  s = sum h,  d = sum h (x - m), xbar = a (h - s / n - (x - m)
// r^2 d / n). Outputs: xbar, in g's memory if in_place; s; d.
struct NormAdjoint {
  scalar::Fused fused{};
  bool in_place = false;
  static constexpr OpTraits traits() { return {.name = "norm_adjoint", .differentiable = false, .takes_half = true}; }
  Types infer(Inputs in) const;
  Tensor reuse(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
};

}  // namespace ops
}  // namespace mpigrad

#endif
