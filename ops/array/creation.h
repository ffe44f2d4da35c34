#pragma once
// Making tensors of the current device, as the Python array API names them. full, zeros, ones, arange(n), from_vector and wrap
// are in framework/tensor/tensor.h.

#include <optional>
#include <vector>

#include "ops/elementwise/number.h"

namespace mpigrad {

// Shape, type and device of x; a distributed tensor gives its block.
Tensor full_like(const Tensor& x, Number value);
// A copy in memory of its own; the cotangent passes.
Tensor clone(const Tensor& x);
// start, start + step, ..., as long as they are below stop (above it, if step < 0): int64 where all three are integers, else
// float32, unless a type is given. Refuses step 0.
Tensor arange(Number start, Number stop, Number step = 1, std::optional<DType> dtype = {});
// `count` numbers from start to stop, which is the last one, or would come next.
Tensor linspace(double start, double stop, std::int64_t count, DType dtype = DType::float32, bool endpoint = true);
// Ones where column - row is k.
Tensor eye(std::int64_t rows, std::optional<std::int64_t> columns = {}, std::int64_t k = 0, DType dtype = DType::float32);
inline Tensor eye(std::int64_t n, DType dtype) { return eye(n, {}, 0, dtype); }
// Coordinates of a mesh: output i has x[i] along its dimension and repeats it along the others; with xy the first two dimensions
// are exchanged.
enum class Indexing : std::uint8_t { xy, ij };
std::vector<Tensor> meshgrid(const std::vector<Tensor>& x, Indexing indexing = Indexing::xy);
// Of the last two dimensions: elements with column - row above k (tril), below k (triu) become 0.
Tensor tril(const Tensor& x, std::int64_t k = 0);
Tensor triu(const Tensor& x, std::int64_t k = 0);
// The elements with column - row = k of the last two dimensions, along one dimension.
Tensor diagonal(const Tensor& x, std::int64_t k = 0);
// A square matrix with x [n] on diagonal k, zeros elsewhere; of a matrix its diagonal.
Tensor diag(const Tensor& x, std::int64_t k = 0);

}  // namespace mpigrad
