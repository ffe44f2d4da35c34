#pragma once
// One-dimensional transforms of all lines along a dimension: the passes of ops/fft/fft.h.

#include <cstdint>
#include <functional>
#include <vector>

#include "framework/engine/op.h"

namespace mpigrad::ops {

struct FourierSum;
struct RealFourierSum;
struct RealFourierInverse;

enum class Lines : std::uint8_t { forward, backward, real_to_half, half_to_real };

// A tensor [outer, n, inner] of which every line of length n is transformed. real_to_half: [outer, n, inner] real to [outer,
// n / 2 + 1, inner] complex, half_to_real the reverse; n counts the real numbers.
struct LinePass {
  Lines kind = Lines::forward;
  std::int64_t outer = 1, n = 1, inner = 1;
  double scale = 1;    // of the results
  double between = 1;  // factor of the complex numbers 0 < k < n / 2, of a real transform only
  std::int64_t half() const { return n / 2 + 1; }
};

// All passes of an op, in the order of its axes. `halved` counts the real numbers of the halved axis, 0 if there is none.
struct FourierPasses {
  std::vector<int> axes;
  bool inverse = false;
  std::int64_t halved = 0;
  double scale = 1, between = 1;
  bool scale_first = false;
};
FourierPasses passes_of(const FourierSum& op);
FourierPasses passes_of(const RealFourierSum& op, const Tensor& x);
FourierPasses passes_of(const RealFourierInverse& op);
// Calls pass(line pass, input, output) for each axis; intermediate results are in `out` or in memory of their own.
void for_each_pass(const FourierPasses& passes, const Tensor& in, Tensor& out,
                   const std::function<void(const LinePass&, const Tensor&, Tensor&)>& pass);

// On the CPU; x and y point to real numbers, two for each complex one. y may be x if the kind is forward or backward.
template <class T>
void transform_lines(const LinePass& pass, const T* x, T* y);

}  // namespace mpigrad::ops
