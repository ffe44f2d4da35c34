#pragma once
// Boxes of a tensor, packed one after the other, each row-major: the contents of messages. Boxes are in the tensor's own
// coordinates. Where boxes overlap, an element is packed, and added, once per box.

#include <vector>

#include "framework/engine/op.h"
#include "framework/tensor/layout.h"

namespace mpigrad {

// All elements of all boxes, in one dimension.
Tensor pack_boxes(const Tensor& x, const std::vector<Box>& boxes);
// x with the packed elements added in their boxes. `packed` has as many elements as the boxes, in any shape. Uses x's memory if
// no other handle holds it: pass std::move(x).
Tensor add_boxes(Tensor x, const Tensor& packed, const std::vector<Box>& boxes);
// Zeros of the given shape with the packed elements added in their boxes.
Tensor boxes_in_zeros(const Tensor& packed, const Shape& shape, const std::vector<Box>& boxes);

// x and its packed boxes. The cotangent of the boxes is added in place to the cotangent of x.
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
// y = x + packed;  xbar = ybar, and the cotangent of packed = the boxes of ybar (PackBoxes)
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
