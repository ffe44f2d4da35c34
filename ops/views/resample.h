#pragma once
// Interpolation along single dimensions: products with sparse matrices; their adjoints are products with the transposed matrices.

#include <memory>

#include "framework/engine/op.h"

namespace mpigrad {

enum class Interpolation : std::uint8_t {
  nearest,  // output o is input floor(o n / m), as in PyTorch
  linear,   // at (o + 1/2) n / m - 1/2 between its two neighbours, the end element beyond the ends (align_corners = false)
  area,     // output o is the mean of the inputs in [floor(o n / m), ceil((o + 1) n / m)): adaptive average pooling
};

// Interpolation of n points to m points: the outputs [out_begin, out_end), from the inputs [in_begin, in_end), which include all
// elements that these outputs read.
struct LinePart {
  Interpolation mode = Interpolation::nearest;
  std::int64_t n = 0, m = 0, in_begin = 0, in_end = 0, out_begin = 0, out_end = 0;
  bool operator==(const LinePart&) const = default;
};
// The inputs that an output reads: [first, last].
std::pair<std::int64_t, std::int64_t> inputs_of(Interpolation mode, std::int64_t n, std::int64_t m, std::int64_t output);
// Interpolates dimension `axis` of the local x.
Tensor interpolate_along(const Tensor& x, int axis, const LinePart& part);

namespace ops {

// y[o] = sum over k in [first[o], first[o + 1]) of weight[k] x[index[k]]
struct SparseRows {
  std::int64_t rows = 0;
  Tensor first, index, weight;  // int64 [rows + 1], int64 and float64 [entries]
};
struct LineMap {
  SparseRows forward, adjoint;  // each other's transpose
};

// Product along one dimension; xbar is the product with the transpose.
struct MapLines {
  std::shared_ptr<const LineMap> map;
  int axis = 0;
  bool adjoint = false;
  static constexpr OpTraits traits() { return {.name = "map_lines"}; }
  const SparseRows& matrix() const { return adjoint ? map->adjoint : map->forward; }
  Types infer(Inputs in) const;
  Cost cost(Inputs in, Outputs out) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay&, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad
