#pragma once
// The exchange of boxes: every rank names the global box it needs and receives the parts from their owners. The adjoint sends the
// boxes back and adds them. Halos, redistribution and sample shuffling all use this operation.

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "framework/engine/op.h"
#include "framework/tensor/layout.h"

namespace mpigrad {

// The boxes that every rank of a communicator has and needs, in global coordinates. Parts that several ranks have are an Error in
// `exchange` (the sum of their cotangents would have no owner; redistribute() lets only the first rank that holds a box send it);
// parts of a needed box that no rank has are filled with zeros.
struct BoxPlan {
  std::vector<Box> have, need;  // one per rank
};
using BoxPlanPtr = std::shared_ptr<const BoxPlan>;

// y = this rank's needed box of the global tensor; x is the box that this rank has. Elements that no rank has are 0.
Tensor exchange(const Tensor& x, const Communicator& comm, const BoxPlanPtr& plan);

// One message of a plan: the part of a box that goes to, or comes from, another rank.
struct BoxPart {
  int peer = 0;
  Box box;
};
// The parts that rank `rank` sends (in rank order) and receives; both include its own part.
std::vector<BoxPart> sent_parts(const BoxPlan& plan, int rank);
std::vector<BoxPart> received_parts(const BoxPlan& plan, int rank);

// Moves parts of `from`, the box that this rank has, into `to`, the box that it needs. `reverse` runs the plan backwards: needed
// boxes are sent back and added. Where `to` is a view of `from`'s storage, the common part is not moved. Communicates.
void move_boxes(const Communicator& comm, const BoxPlan& plan, const Tensor& from, Tensor& to, bool reverse);

// The local part of move_boxes(): copies `part` of `from`, which covers `from_box`, to its place in `to`.
void copy_box(const Tensor& from, const Box& from_box, Tensor& to, const Box& to_box, const Box& part);

namespace ops {

// Exchange: y = needed box. ReturnBoxes: each rank sends its needed box back; the owner adds all parts that overlap its own box.
// Each is the other's vjp.
struct Exchange {
  Communicator comm;
  BoxPlanPtr plan;
  static constexpr OpTraits traits() { return {.name = "exchange", .communicates = true}; }
  Types infer(Inputs in) const;
  // Where the input's storage has room for the missing elements, the result is allocated around the input.
  Tensor view(Inputs in) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
struct ReturnBoxes {
  Communicator comm;
  BoxPlanPtr plan;
  bool consume = false;  // the input has no other owner: add to it in place, if the result is a part of it
  static constexpr OpTraits traits() { return {.name = "return_boxes", .communicates = true}; }
  Types infer(Inputs in) const;
  Tensor view(Inputs in) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad
