#ifndef MPIGRAD_OPS_LINEAR_MATMUL_H
#define MPIGRAD_OPS_LINEAR_MATMUL_H
// Products of matrices.

#include "framework/engine/op.h"
#include "ops/elementwise/activation_type.h"

namespace mpigrad {

struct MatmulAttributes {
  bool transpose_a = false, transpose_b = false;  // transposes the last two dimensions
};

// c[..., m, n] = a[..., m, k] b[..., k, n]; dimensions before the last two broadcast. A vector is a row on the left and a column
// on the right; its dimension of extent 1 is removed from the result. One operand or both may be complex; transposing does not
// conjugate.
Tensor matmul(const Tensor& a, const Tensor& b, const MatmulAttributes& attributes = {});
// Sum of conj(a) b along `axis`, which must be negative (counted from the end). All other dimensions broadcast.
Tensor vecdot(const Tensor& a, const Tensor& b, int axis = -1);
// Sums of products over the last `dimensions` of a and the first ones of b, or over pairs of dimensions.
Tensor tensordot(const Tensor& a, const Tensor& b, int dimensions = 2);
Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int>& of_a, const std::vector<int>& of_b);
namespace local {
// activation(x w^T + bias): x: [N, in], w: [out, in], bias [out] or none. All have one type, or x has 16 bits and w is float32:
// then the product is computed in float32, with w as it is, and rounded to x's type.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {}, Activation activation = Activation::none);
}  // namespace local

namespace ops {

// C = op(A) op(B);  op(A)bar = Cbar op(B)^T,  op(B)bar = op(A)^T Cbar. Batches are equal, or one operand has no batch and is used
// for all.
struct Matmul {
  MatmulAttributes a;
  static constexpr OpTraits traits() { return {.name = "matmul", .keeps_inputs = 3}; }
  Types infer(Inputs in) const;
  Cost cost(Inputs in, Outputs out) const;
  LayoutPtr layout(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

struct Linear {
  scalar::Fused fused{};
  static constexpr OpTraits traits() { return {.name = "linear", .keeps_inputs = 3}; }
  unsigned kept_outputs() const { return fused.is_none() ? 0 : 1; }
  Types infer(Inputs in) const;
  Cost cost(Inputs in, Outputs out) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad

#endif
