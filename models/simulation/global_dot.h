#pragma once
// Inner products of tensors that may be split over ranks.

#include "comm/communicator.h"
#include "framework/engine/op.h"

namespace mpigrad {

// The sum over all elements of a b, outside of the tape; lists of tensors are one long vector. Ranks with parts of a distributed
// tensor add them up; parts that several ranks hold count once. Plain tensors: of this rank, or the sum over the ranks of `comm`.
//
// The result is the same on all ranks, and does not depend on the number of ranks or on the cuts, bit for bit: each product,
// rounded to float64, is cut into three numbers of fixed grids, whose sums are exact in any order (J. Demmel and H. D. Nguyen,
// "Parallel reproducible summation", IEEE Trans. Computers 64, 2015). NaN if a product is not finite. Elements on a GPU are
// copied to the host.
//
// Collective. Errors: types or layouts of a and b differ; not floating-point; a partial sum; no elements (the dry device).
double global_dot(const Tensor& a, const Tensor& b, const Communicator& comm = {});
double global_dot(const Tensors& a, const Tensors& b, const Communicator& comm = {});
// The square root of global_dot(x, x).
double global_norm(const Tensor& x, const Communicator& comm = {});
double global_norm(const Tensors& x, const Communicator& comm = {});

}  // namespace mpigrad
