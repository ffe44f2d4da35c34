#pragma once
// Transforms of whole dimensions on tensors that may be split along them: a split dimension is redistributed before its turn.

#include <functional>
#include <vector>

#include "framework/tensor/tensor.h"

namespace mpigrad {

// Transforms a distributed tensor along the dimensions `order`, in this order. A split dimension is made whole before its turn;
// the grid axis that split it then splits another dimension (comm/fft/fft.h).
class Transposing {
 public:
  // `wanted`: the layout of the result; none: that of the last redistribution. `op` is named in errors.
  Transposing(const char* op, std::vector<int> order, LayoutPtr wanted)
      : op_(op), order_(std::move(order)), wanted_(std::move(wanted)) {}

  // part(x, first, last) transforms x along order[first] to order[last - 1], which are whole on every rank. Error: no dimension
  // is left to be split in place of a transformed one.
  Tensor run(Tensor x, const std::function<Tensor(const Tensor&, std::size_t first, std::size_t last)>& part) const;

 private:
  LayoutPtr moved(const Tensor& x, std::size_t done) const;
  int free_dimension(const Tensor& x, std::size_t done, std::size_t a, int parts) const;

  const char* op_;
  std::vector<int> order_;
  LayoutPtr wanted_;
};

// The dimensions of x that `axes` name, not negative. Errors: none; one named twice; one without elements.
std::vector<int> transformed_axes(const char* op, const Tensor& x, const std::vector<int>& axes);

}  // namespace mpigrad
