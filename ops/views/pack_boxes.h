#pragma once
// Boxes of a tensor, packed one behind the other, each row-major: what messages carry and what arrives from them. Boxes are in
// the tensor's own coordinates; where they overlap, an element is packed several times, and adding adds it as often.

#include <vector>

#include "framework/engine/op.h"
#include "framework/tensor/layout.h"

namespace mpigrad {

// [elements of all boxes]
Tensor pack_boxes(const Tensor& x, const std::vector<Box>& boxes);
// x with the packed elements added in their boxes. `packed` has as many elements as the boxes, in any shape. Takes x's memory
// where nobody else holds it: hand in std::move(x).
Tensor add_boxes(Tensor x, const Tensor& packed, const std::vector<Box>& boxes);
// A tensor of zeros with those.
Tensor boxes_in_zeros(const Tensor& packed, const Shape& shape, const std::vector<Box>& boxes);

// x and its packed boxes, whose cotangents meet in one tensor: that of the boxes is added to that of x in place.
struct WithPackedBoxes {
  Tensor x, packed;
};
WithPackedBoxes with_packed_boxes(const Tensor& x, const std::vector<Box>& boxes);

namespace ops {

// y = the boxes of x;  xbar = ybar added in its boxes to zeros (AddBoxes)
struct PackBoxes {
  std::vector<Box> boxes;
  static constexpr OpTraits traits() { return {.name = "pack_boxes", .takes_half = true}; }
  Types infer(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
// y = x + packed;  xbar = ybar, the other one's cotangent = the boxes of ybar (PackBoxes)
struct AddBoxes {
  std::vector<Box> boxes;
  bool in_place = false;  // y takes the memory of x
  static constexpr OpTraits traits() { return {.name = "add_boxes", .takes_half = true}; }
  Types infer(Inputs in) const;
  Tensor reuse(Inputs in) const;
  void run(Cpu, Inputs in, Outputs out) const;
  void run(Cuda, Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad
