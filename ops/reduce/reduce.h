#ifndef MPIGRAD_OPS_REDUCE_REDUCE_H
#define MPIGRAD_OPS_REDUCE_REDUCE_H
// Reductions over the listed dimensions; negative ones count from the end. An empty list reduces nothing; functions without a
// list reduce all dimensions, argmax and argmin the one given. With keep, reduced dimensions stay with extent 1. Sums of
// floating-point numbers accumulate in float64, those of integers in int64.

#include <vector>

#include "framework/engine/op.h"
#include "ops/elementwise/number.h"

namespace mpigrad {

// Sums of integers and booleans are int64, modulo 2^64. sum, mean, dot and broadcast_to take complex tensors.
Tensor sum(const Tensor& x, const std::vector<int>& axes, bool keep = false);
Tensor sum(const Tensor& x);
// Divides by the global number of elements, so that the result over a split dimension is a partial sum of the mean.
Tensor mean(const Tensor& x, const std::vector<int>& axes, bool keep = false);
Tensor mean(const Tensor& x);
// If k elements equal the extremum, each gets 1/k of the cotangent. If there are NaNs, the NaN elements share it instead (see
// ops/elementwise/elementwise.h). Empty extents are refused.
Tensor max(const Tensor& x, const std::vector<int>& axes, bool keep = false);
Tensor max(const Tensor& x);
Tensor min(const Tensor& x, const std::vector<int>& axes, bool keep = false);
Tensor min(const Tensor& x);
// Index of the first maximum along one dimension, int64; of the first NaN if there is one, as max() is NaN there.
Tensor argmax(const Tensor& x, int axis);
Tensor argmin(const Tensor& x, int axis);
// The sum of the products of corresponding elements: a scalar. Of complex tensors, the real Re sum conj(a) b.
Tensor dot(const Tensor& a, const Tensor& b);
// Repeats dimensions of extent 1, and adds dimensions in front.
Tensor broadcast_to(const Tensor& x, const Shape& shape);

// any: true if an element is not 0; all: true if every element is not 0. With no elements, any is false and all is
// true. Results are booleans; `.item() != 0` is a condition.
Mask any(const Tensor& x, const std::vector<int>& axes, bool keep = false);
Mask any(const Tensor& x);
Mask all(const Tensor& x, const std::vector<int>& axes, bool keep = false);
Mask all(const Tensor& x);

namespace ops {

// Calls f with a zero of a type in which sums are computed: floating-point or int64.
template <class F>
void visit_sums(DType dtype, F&& f) {
  if (dtype == DType::int64) f(std::int64_t{0});
  else visit_any_floating(dtype, std::forward<F>(f));
}

// ybar summed over the dimensions that broadcasting repeated; an absent cotangent stays absent.
Tensor sum_to(const Tensor& g, const Shape& shape);

// y[...] = sum of x over `axes` (kept with extent 1);  xbar = broadcast_to(ybar)
struct Sum {
  std::vector<int> axes;  // ascending, not negative
  static constexpr OpTraits traits() { return {.name = "sum", .takes_half = true}; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

// y = broadcast_to(x, shape);  xbar = sum over the repeated dimensions
struct BroadcastTo {
  Shape shape;
  static constexpr OpTraits traits() { return {.name = "broadcast_to", .takes_half = true, .takes_complex = true}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

// True where x attains its maximum (minimum) m: equal to m, or NaN where m is NaN as well. Broadcasts; boolean.
Tensor attains(const Tensor& x, const Tensor& m);

// y = max (min) over `axes` (kept);  xbar = ybar a / sum a, a = attains(x, y)
struct Extremum {
  std::vector<int> axes;
  bool largest = true;
  static constexpr OpTraits traits() { return {.name = "max/min", .keeps_inputs = 1, .keeps_outputs = 1}; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

struct ArgMax {
  int axis = 0;
  static constexpr OpTraits traits() { return {.name = "argmax", .differentiable = false}; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
};

}  // namespace ops
}  // namespace mpigrad

#endif
