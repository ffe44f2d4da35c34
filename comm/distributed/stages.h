#pragma once
// Stages of a pipeline: groups of equally many ranks, each with a grid of the same shape, and the messages between them.
//
// Every rank runs the whole program. A distributed tensor belongs to the stage of its grid. On the ranks of other stages it is a
// stand-in on the dry device (Tensor::stand_in), with a type and a layout but no elements. Ops on stand-ins cost almost nothing,
// and tapes do not record them. move() carries a tensor to another stage, and its adjoint carries the cotangent back. An op whose
// operands belong to several stages first moves them to the last of these stages. Skip connections, and weights that several
// stages use, therefore travel as messages, too.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/distributed/grid.h"

namespace mpigrad {

// Names used in cost records (framework/engine/cost.h) for waiting for a message from another stage, and for sending one.
inline constexpr std::string_view waits_for_stage = "wait for a stage", sends_to_stage = "send to a stage";

class Stages : public std::enable_shared_from_this<Stages> {
 public:
  // Collective over `world`. Its first ranks form stage 0. Error: its number of ranks is not `count` times that of `each`.
  static std::shared_ptr<const Stages> make(const Communicator& world, int count, const GridExtents& each,
                                            Overlap overlap = Overlap::automatic);

  // The stages that a grid belongs to; null if it is not the grid of a stage.
  static std::shared_ptr<const Stages> of(const GridShape& grid);

  int count() const { return static_cast<int>(grids_.size()); }
  int mine() const { return mine_; }  // this rank's stage
  const GridPtr& grid() const { return grids_[static_cast<std::size_t>(mine_)]; }
  // The same grid, by a pointer that keeps the stages alive, too.
  GridPtr owning_grid() const { return {shared_from_this(), grid().get()}; }
  // The stage of a tensor, or -1 if it has no layout or is on another grid.
  int stage_of(const Tensor& x) const { return x.layout() ? stage_of(*x.layout()->grid) : -1; }
  int stage_of(const GridShape& grid) const;

  // Makes a tensor of one stage from a batch x that every stage has read. x is on grid(); on the ranks of stages other
  // than `stage` the result is a stand-in.
  Tensor at(int stage, const Tensor& x) const;
  // Moves x to a later stage. Recorded, unless x is constant: the adjoint moves the cotangent back. Sending does not wait; a rank
  // of stage `to` waits for the message. All ranks of both stages call it, at the same place of their programs.
  Tensor move(const Tensor& x, int to) const;
  // The elements of x on every stage, as a constant on grid(). Collective over all ranks.
  Tensor everywhere(const Tensor& x) const;
  // Of `stage`, on all ranks. Collective over all ranks.
  std::vector<double> everywhere(std::vector<double> values, int stage) const;

  // The layout, on the grid of all ranks, of a tensor that only the stage with this number stores. The first axis of this grid is
  // named "stage"; blocks on the other stages are empty. `on_stage` is the layout on the grid of that stage. Error: all
  // dimensions are split.
  LayoutPtr stored(int stage, const Layout& on_stage) const;
  // The replicated layout on a stage's grid.
  LayoutPtr replicated(int stage, const Shape& global) const;
  // A tensor of that layout on another stage, without elements.
  Tensor stand_in(const LayoutPtr& layout, DType dtype, bool constant = false) const;

  // A forward or backward pass of one micro-batch. While a forward pass is in scope, a tensor that has been moved to a stage is
  // not sent there again.
  class Pass {
   public:
    explicit Pass(const Stages& stages, bool forward = true) : stages_(stages), forward_(forward) {
      stages_.remembers_ = forward, ++stages_.passes_[forward];
    }
    ~Pass() {
      if (forward_) stages_.remembers_ = false, stages_.moved_.clear();
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    const Stages& stages_;
    bool forward_;
  };
  // Lets messages on their way advance: MPI moves large ones only while its functions run.
  void poll() const;
  // Error on all ranks: stages have moved different numbers of tensors, as they do if a batch that all stages have read is used
  // without at(). Collective over the ranks at this rank's place.
  void require_same_moves() const;
  // Waits until all messages of this rank have been received.
  void flush() const { sent_.clear(); }
  // Messages that this rank has sent to other stages so far.
  struct Traffic {
    std::int64_t messages = 0, bytes = 0;
  };
  const Traffic& sent() const { return traffic_; }

 private:
  struct Sent {
    Tensor x;  // kept until the message has been received
    Pending message;
    bool forward = true;
    // Only for dry runs: as soon as passes_ has reached this number, the message counts as received.
    std::int64_t received_in = 0;
  };
  Stages() = default;
  bool is_received(Sent& sent) const;
  // The two halves of move(), each the other's adjoint.
  void send(const Tensor& x, int to) const;
  Tensor receive(const TensorType& type, int from) const;

  int mine_ = 0;
  std::vector<GridPtr> grids_;  // by stage; those of other stages are dry
  GridPtr whole_;               // stage x the axes of a stage
  Communicator across_;         // the ranks at this rank's place in all stages
  mutable std::vector<Sent> sent_;
  mutable Traffic traffic_;
  mutable bool remembers_ = false;
  mutable std::int64_t moves_ = 0;
  mutable std::array<std::int64_t, 2> passes_{};  // backward and forward passes so far
  mutable std::map<std::pair<std::uint64_t, int>, Tensor> moved_;
};

}  // namespace mpigrad
