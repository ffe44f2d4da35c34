#pragma once
// Creation of tensors on the current device, with the names of the Python array API. full, zeros, ones, arange(n), from_vector
// and wrap are in framework/tensor/tensor.h.

#include <optional>
#include <vector>

#include "ops/elementwise/number.h"

namespace mpigrad {

// A tensor with the shape, type, device and layout of x; without a layout where x is a partial sum.
Tensor full_like(const Tensor& x, Number value);
// A copy with its own memory; the cotangent passes through.
Tensor clone(const Tensor& x);
// start, start + step, ..., as long as they are below stop (above it, if step < 0): int64 where all three are integers, else
// float32, unless a type is given. Refuses step 0.
Tensor arange(Number start, Number stop, Number step = 1, std::optional<DType> dtype = {});
// `count` equidistant numbers from start to stop; with `endpoint` the last one is stop, without it stop would be the next one.
Tensor linspace(double start, double stop, std::int64_t count, DType dtype = DType::float32, bool endpoint = true);
// [rows, columns] (columns = rows by default): 1 where column - row = k, else 0.
Tensor eye(std::int64_t rows, std::optional<std::int64_t> columns = {}, std::int64_t k = 0, DType dtype = DType::float32);
inline Tensor eye(std::int64_t n, DType dtype) { return eye(n, {}, 0, dtype); }
// Coordinates of a mesh: output i has x[i] along its dimension and repeats it along the others; with xy the first two dimensions
// are exchanged.
enum class Indexing : std::uint8_t { xy, ij };
std::vector<Tensor> meshgrid(const std::vector<Tensor>& x, Indexing indexing = Indexing::xy);
// In the last two dimensions, sets elements with column - row above k (tril) or below k (triu) to 0.
Tensor tril(const Tensor& x, std::int64_t k = 0);
Tensor triu(const Tensor& x, std::int64_t k = 0);
// The elements with column - row = k of the last two dimensions, which become one dimension.
Tensor diagonal(const Tensor& x, std::int64_t k = 0);
// x [n]: a square matrix with x on diagonal k, zeros elsewhere; x a matrix: its diagonal k.
Tensor diag(const Tensor& x, std::int64_t k = 0);

}  // namespace mpigrad
