#pragma once
// Functions that move elements, with the names of NumPy and the Python array API; all are compositions of those in
// ops/views/views.h. Negative dimensions count from the end. Distributed tensors keep their layouts; operations that would move a
// split dimension between ranks are refused.

#include <initializer_list>
#include <vector>

#include "framework/tensor/tensor.h"

namespace mpigrad {

// Joins parts of equal shape and type along a new dimension.
Tensor stack(const std::vector<Tensor>& parts, int axis = 0);
// `parts` pieces of equal size, or pieces of the listed sizes, whose sum is the extent.
std::vector<Tensor> split(const Tensor& x, std::int64_t parts, int axis = 0);
std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int axis = 0);
inline std::vector<Tensor> split(const Tensor& x, std::initializer_list<std::int64_t> sizes, int axis = 0) {  // {3} is a list
  return split(x, std::vector(sizes), axis);
}
// x[0], x[1], ... along a dimension, which is removed.
std::vector<Tensor> unbind(const Tensor& x, int axis = 0);
namespace local {
// roll() of comm/halos/periodic.h along a dimension that is not split over ranks.
Tensor roll(const Tensor& x, std::int64_t shift, int axis);
}  // namespace local
// Repeats each element `times` times in a row along the dimension.
Tensor repeat(const Tensor& x, std::int64_t times, int axis);
// Repeats x times[d] times along each dimension d; if there are more numbers than dimensions, dimensions are added in front.
Tensor tile(const Tensor& x, const std::vector<std::int64_t>& times);
// Dimension from[i] becomes dimension to[i]; the others keep their order.
Tensor moveaxis(const Tensor& x, const std::vector<int>& from, const std::vector<int>& to);
Tensor moveaxis(const Tensor& x, int from, int to);
Tensor swapaxes(const Tensor& x, int a, int b);
// Transposes every matrix of the last two dimensions.
Tensor matrix_transpose(const Tensor& x);
// Removes all dimensions of extent 1.
Tensor squeeze(const Tensor& x);
// Broadcasts all tensors to their common shape.
std::vector<Tensor> broadcast_arrays(const std::vector<Tensor>& x);
// The slices of x along a dimension that `indices` (int64 [n]) name; the cotangents of one slice add up.
Tensor take(const Tensor& x, const Tensor& indices, int axis);
// y[.., i, ..] = x[.., indices[.., i, ..], ..]; `indices` (int64) has x's shape except along that dimension.
Tensor take_along_axis(const Tensor& x, const Tensor& indices, int axis);

}  // namespace mpigrad
