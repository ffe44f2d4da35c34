#pragma once
// The exchange of boxes: every rank names the global box it needs and receives the parts from whoever owns them. The adjoint
// sends the boxes home and adds. Halos, redistribution and sample shuffling are this one operation.

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "framework/engine/op.h"
#include "framework/tensor/layout.h"

namespace mpigrad {

// What every rank of a communicator has and needs, in global coordinates. Parts that several ranks have are refused by
// `exchange` (the sum of their cotangents would have no owner); parts of a needed box that nobody has are left out: `fill`.
struct BoxPlan {
  std::vector<Box> have, need;  // one per rank
};
using BoxPlanPtr = std::shared_ptr<const BoxPlan>;

// y = this rank's needed box of the global tensor of which x is this rank's box; elements that nobody has are 0.
Tensor exchange(const Tensor& x, const Communicator& comm, const BoxPlanPtr& plan);

// One message of a plan: the part of a box that goes to, or comes from, another rank.
struct BoxPart {
  int peer = 0;
  Box box;
};
// What rank r sends (to rank order) and receives; its own part is among both.
std::vector<BoxPart> sent_parts(const BoxPlan& plan, int rank);
std::vector<BoxPart> received_parts(const BoxPlan& plan, int rank);

// Moves parts of `from`, this rank's box that it has, into `to`, its box that it needs. `reverse` runs the plan backwards: needed
// boxes are sent home and added there. Where `to` is a view of `from`'s storage, what both have is not moved. Communicates.
void move_boxes(const Communicator& comm, const BoxPlan& plan, const Tensor& from, Tensor& to, bool reverse);

// The local part of that: `part` of `from`, which covers `from_box`, to its place in `to`.
void copy_box(const Tensor& from, const Box& from_box, Tensor& to, const Box& to_box, const Box& part);

namespace ops {

// y = needed box;  xbar = ReturnBoxes: own box of the sum over ranks of the ybar that cover it, and the other way round
struct Exchange {
  Communicator comm;
  BoxPlanPtr plan;
  static constexpr OpTraits traits() { return {.name = "exchange", .communicates = true}; }
  Types infer(Inputs in) const;
  // Where the input's storage has room for what is missing, the result lies around the input.
  Tensor view(Inputs in) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
struct ReturnBoxes {
  Communicator comm;
  BoxPlanPtr plan;
  bool consume = false;  // nobody else holds the input: add to it in place, where the result is a part of it
  static constexpr OpTraits traits() { return {.name = "return_boxes", .communicates = true}; }
  Types infer(Inputs in) const;
  Tensor view(Inputs in) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad
