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

// One message: the part of a box that goes to, or comes from, rank `peer`.
struct BoxPart {
  int peer = 0;
  Box box;
};
// One rank's own boxes and the parts that it sends and receives, in the order of ranks; its own part is in both lists. This is
// all that the rank keeps of a plan: the lists grow with the number of its partners, not with the number of ranks.
struct RankBoxes {
  Box have, need;
  std::vector<BoxPart> sent, received;
};
using RankBoxesPtr = std::shared_ptr<const RankBoxes>;
RankBoxes boxes_of(const BoxPlan& plan, int rank);

// Blocks along one grid axis: the rank at place i has ranges[i] of dimension `dimension`. If `dimension` is negative, that rank
// has the whole tensor if ranges[i] is not empty, and nothing otherwise.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end > begin ? end - begin : 0; }
  bool operator==(const Range&) const = default;
};
struct AxisBlocks {
  int dimension = -1;
  std::vector<Range> ranges;
};
// The parts of `box` that the ranks of a grid with these axes have, in the order of ranks (the last axis runs fastest). Time and
// memory grow with the extents of the axes and the number of parts, not with the number of ranks.
std::vector<BoxPart> parts_of(const Box& box, const std::vector<AxisBlocks>& axes);

// Moves parts of `from`, the box that this rank has, into `to`, the box that it needs. `reverse` runs the plan backwards: needed
// boxes are sent back and added. Where `to` is a view of `from`'s storage, the common part is not moved. Communicates.
void move_boxes(const Communicator& comm, const RankBoxes& boxes, const Tensor& from, Tensor& to, bool reverse);

// The local part of move_boxes(): copies `part` of `from`, which covers `from_box`, to its place in `to`.
void copy_box(const Tensor& from, const Box& from_box, Tensor& to, const Box& to_box, const Box& part);

namespace ops {

// Exchange: y = needed box. ReturnBoxes: each rank sends its needed box back; the owner adds all parts that overlap its own box.
// Each is the other's vjp.
struct Exchange {
  Communicator comm;
  RankBoxesPtr boxes;
  static constexpr OpTraits traits() { return {.name = "exchange", .communicates = true, .takes_complex = true}; }
  Types infer(Inputs in) const;
  // Where the input's storage has room for the missing elements, the result is allocated around the input.
  Tensor view(Inputs in) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};
struct ReturnBoxes {
  Communicator comm;
  RankBoxesPtr boxes;
  bool consume = false;  // the input has no other owner: add to it in place, if the result is a part of it
  static constexpr OpTraits traits() { return {.name = "return_boxes", .communicates = true, .takes_complex = true}; }
  Types infer(Inputs in) const;
  Tensor view(Inputs in) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad
