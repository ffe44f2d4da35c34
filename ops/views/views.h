#ifndef MPIGRAD_OPS_VIEWS_VIEWS_H
#define MPIGRAD_OPS_VIEWS_VIEWS_H
// Ops that move elements without computing, for every element type and device. Negative dimensions count from the end.

#include <vector>

#include "framework/engine/op.h"

namespace mpigrad {

// The same elements in row-major order with another shape; one extent may be -1. No copy. For a distributed tensor the shape is
// the local one, and it must show on every rank where the split dimensions go. squeeze, unsqueeze and flatten_from always do.
Tensor reshape(const Tensor& x, const std::vector<std::int64_t>& extents);
Tensor reshape(const Tensor& x, const Shape& shape);
inline Tensor reshape(const Tensor& x, std::initializer_list<std::int64_t> extents) {
  return reshape(x, std::vector<std::int64_t>(extents));
}
Tensor squeeze(const Tensor& x, const std::vector<int>& axes);  // removes dimensions of extent 1
Tensor unsqueeze(const Tensor& x, int axis);                    // inserts one
Tensor flatten_from(const Tensor& x, int axis);                 // merges `axis` and all later dimensions into one
// Dimension i of the result is dimension order[i] of x.
Tensor permute(const Tensor& x, const std::vector<int>& order);
Tensor transpose(const Tensor& x);  // x is a matrix
// x[begin:end:step] in every dimension; 0 <= begin <= end <= extent, step > 0.
Tensor slice(const Tensor& x, const Shape& begin, const Shape& end);
Tensor slice(const Tensor& x, const Shape& begin, const Shape& end, const Shape& step);
Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end);
// `low` and `high` elements of `value` before and after, in every dimension. Complex tensors: value 0 only.
Tensor pad(const Tensor& x, const Shape& low, const Shape& high, double value = 0);
Tensor pad(const Tensor& x, std::initializer_list<std::int64_t> low, std::initializer_list<std::int64_t> high, double value = 0);
// Joins parts along an existing dimension; their types and all other extents are equal.
Tensor concatenate(const std::vector<Tensor>& parts, int axis);
// Reverses the order along the listed dimensions.
Tensor flip(const Tensor& x, const std::vector<int>& axes);
// Rows of x along dimension 0: y[i] = x[indices[i]]; indices int64 in [0, n). The adjoint adds rows up.
Tensor take(const Tensor& x, const Tensor& indices);
// y[indices[i]] += x[i], y has n rows.
Tensor scatter_add(const Tensor& x, const Tensor& indices, std::int64_t rows);
// indices [..] -> [.., classes]: 1 at the index, zeros elsewhere (zeros everywhere for an index outside [0, classes)).
Tensor one_hot(const Tensor& indices, std::int64_t classes, DType dtype = DType::float32);

namespace ops {

struct Reshape {
  Shape shape;
  // Set by squeeze, unsqueeze and flatten_from: for each dimension of the result the dimension of x that it was, -1 for a new or
  // merged one. Needed because extents of 1 are ambiguous.
  std::vector<int> from{};
  static constexpr OpTraits traits() { return {.name = "reshape", .takes_complex = true}; }
  Types infer(Inputs in) const;
  Cost cost(Inputs, Outputs) const { return {}; }
  LayoutPtr layout(Inputs in) const;
  Tensor view(Inputs in) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

struct Permute {
  std::vector<int> order;
  static constexpr OpTraits traits() { return {.name = "permute", .takes_half = true, .takes_complex = true}; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

// y[i] = x[begin + i * step];  xbar = ybar put back in zeros (SlicePut)
struct Slice {
  Shape begin, end, step;
  static constexpr OpTraits traits() { return {.name = "slice", .takes_half = true, .takes_complex = true}; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

// y = value everywhere, except y[begin + i * step] = x[i];  xbar = slice of ybar. Padding is step 1.
struct SlicePut {
  Shape begin, step, shape;
  double value = 0;
  SlicePut of_parts() const;  // the same for the real numbers of complex elements, with one more dimension
  static constexpr OpTraits traits() { return {.name = "pad", .takes_half = true, .takes_complex = true}; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

struct Concatenate {
  int axis = 0;
  static constexpr OpTraits traits() { return {.name = "concatenate", .takes_half = true, .takes_complex = true}; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

struct Flip {
  std::vector<int> axes;
  static constexpr OpTraits traits() { return {.name = "flip", .takes_half = true, .takes_complex = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay&, Inputs g) const { return {flip(g[0], axes)}; }
};

// Take and ScatterAdd are each other's transpose in x.
struct Take {
  static constexpr OpTraits traits() { return {.name = "take", .keeps_inputs = 2, .takes_half = true, .takes_complex = true}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
struct ScatterAdd {
  std::int64_t rows = 0;
  static constexpr OpTraits traits() { return {.name = "scatter_add", .keeps_inputs = 2}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

struct OneHot {
  std::int64_t classes = 0;
  DType dtype = DType::float32;
  static constexpr OpTraits traits() { return {.name = "one_hot", .differentiable = false, .takes_half = true}; }
  Types infer(Inputs in) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
};

}  // namespace ops
}  // namespace mpigrad

#endif
