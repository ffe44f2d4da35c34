#pragma once
// Conversions between replicated and varying values. A varying tensor lives in a space whose inner product sums over ranks; a
// replicated one is one value stored many times and counts once. Two pairs of transposes convert one into the other, and each
// op's vjp is the other op of its pair, never the plain collective: otherwise second derivatives are P times too large.
//
// The caller promises that a tensor is replicated. MPIGRAD_CHECKS=same (comm/transport/watch/checks.h) compares over ranks the
// inputs of replicate and shard, and the cotangents of allreduce_invariant and allgather_invariant.

#include "comm/collectives/collectives.h"

namespace mpigrad {

// replicated -> varying, no data moves. Its adjoint, allreduce_invariant, is the gradient reduction of data parallelism.
// Once per tape, tensor and communicator: two uses cost one reduction.
Tensor replicate(const Tensor& x, const Communicator& comm);
// varying -> replicated: the sum over ranks.  xbar = replicate(ybar)
Tensor allreduce_invariant(const Tensor& x, const Communicator& comm);

// replicated -> varying: this rank's block of rows.  xbar = allgather_invariant(ybar)
Tensor shard(const Tensor& x, const Communicator& comm, Rows rows = {});
// varying -> replicated: all blocks.  xbar = shard(ybar)
Tensor allgather_invariant(const Tensor& x, const Communicator& comm, Rows rows = {});

// replicated -> partial: the value on rank 0, zeros elsewhere; adds a replicated term to a loss that is a partial sum.
Tensor once(const Tensor& x, const Communicator& comm);
// The same for a distributed tensor, over the axes along which `partial` is a partial sum and x is not yet one.
Tensor once(const Tensor& x, const Tensor& partial);

namespace ops {

struct Replicate {
  Communicator comm;
  static constexpr OpTraits traits() { return {.name = "replicate", .communicates = true, .takes_complex = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs in) const;
  Tensors vjp(const Replay&, Inputs g) const { return {allreduce_invariant(g[0], comm)}; }
  // The same reduction without waiting, for parameters.
  std::unique_ptr<PendingCotangent> start_reduction(const Tensor& cotangent) const;
  std::uint64_t reduces_over() const { return comm.number(); }
};
struct AllReduceInvariant {
  Communicator comm;
  static constexpr OpTraits traits() { return {.name = "allreduce_invariant", .communicates = true, .takes_complex = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  void run(Inputs in, Outputs out) const { AllReduce{comm}.run(in, out); }
  Tensors vjp(const Replay&, Inputs g) const;
};

// All rows of a weight of which each rank stores those of `layout`, a split of dimension 0 along one line of all ranks.
// xbar: this rank's rows of the sum of all ybar, computed in buckets while the replay continues.
struct GatherStored {
  Communicator comm;
  Rows rows;
  LayoutPtr layout;
  Tensor begun{};  // memory in which the result arrives, if the gather has begun
  static constexpr OpTraits traits() { return AllGather::traits(); }
  Types infer(Inputs in) const { return AllGather{comm, rows}.infer(in); }
  Tensor reuse(Inputs) const { return begun ? Tensor(begun.type(), begun.storage(), begun.offset()) : Tensor(); }
  void run(Inputs in, Outputs out) const {
    if (!begun) AllGather{comm, rows}.run(in, out);
  }
  Tensors vjp(const Replay& at, Inputs g) const { return AllGather{comm, rows}.vjp(at, g); }
  std::unique_ptr<PendingCotangent> start_reduction(const Tensor& cotangent) const;
  std::uint64_t reduces_over() const { return comm.number(); }
  LayoutPtr reduced_rows() const { return layout; }
};

struct Shard {
  Communicator comm;
  Rows rows;
  static constexpr OpTraits traits() { return {.name = "shard", .communicates = true, .takes_complex = true}; }
  Types infer(Inputs in) const;
  void run(Inputs in, Outputs out) const;
  Tensors vjp(const Replay&, Inputs g) const { return {allgather_invariant(g[0], comm, rows)}; }
};
struct AllGatherInvariant {
  Communicator comm;
  Rows rows;
  static constexpr OpTraits traits() { return {.name = "allgather_invariant", .communicates = true, .takes_complex = true}; }
  Types infer(Inputs in) const { return AllGather{comm, rows}.infer(in); }
  void run(Inputs in, Outputs out) const { AllGather{comm, rows}.run(in, out); }
  Tensors vjp(const Replay&, Inputs g) const;
};

// y_0 = x, zeros elsewhere;  xbar = ybar_0 on every rank, by FromFirst, the transpose of Once
struct Once {
  Communicator comm;
  static constexpr OpTraits traits() { return {.name = "once", .communicates = true, .takes_complex = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  void run(Inputs in, Outputs out) const;
  Tensors vjp(const Replay&, Inputs g) const;
};
struct FromFirst {
  Communicator comm;
  static constexpr OpTraits traits() { return {.name = "once_adjoint", .communicates = true, .takes_complex = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  void run(Inputs in, Outputs out) const { Bcast{comm, 0}.run(in, out); }
  Tensors vjp(const Replay&, Inputs g) const { return {once(g[0], comm)}; }
};

}  // namespace ops
}  // namespace mpigrad
