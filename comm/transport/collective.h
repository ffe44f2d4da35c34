#ifndef MPIGRAD_COMM_TRANSPORT_COLLECTIVE_H
#define MPIGRAD_COMM_TRANSPORT_COLLECTIVE_H
// Collective calls as data. A new kind is a row of traits_of() and a case in each of the transports mpi (blocking and not) and
// nccl; what moves, and the transports of threads, of device copies, staging, checks and the dry transport follow from the row.
// Its op (comm/collectives/collectives.h) calls Transport::run().

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "framework/tensor/dtype.h"

namespace mpigrad {

// On booleans max is "or" and min is "and". A new one is a value, a row of traits_of(), and what it does in
// comm/transport/combine.h and comm/transport/mpi/call.cpp.
enum class CombineOp : std::uint8_t { sum, max, min, prod, band, bor, bxor };

struct CombineTraits {
  std::string_view name;
  bool floating = true;   // of floating-point numbers, too; of integers all are
  bool booleans = false;  // of booleans, too
  bool on_gpu = true;     // what moves a GPU's tensors computes it there; else they go over the host
};
constexpr CombineTraits traits_of(CombineOp op) {
  switch (op) {
    case CombineOp::sum: return {.name = "sum"};
    case CombineOp::max: return {.name = "max", .booleans = true};
    case CombineOp::min: return {.name = "min", .booleans = true};
    case CombineOp::prod: return {.name = "prod"};
    case CombineOp::band: return {.name = "band", .floating = false, .booleans = true, .on_gpu = false};
    case CombineOp::bor: return {.name = "bor", .floating = false, .booleans = true, .on_gpu = false};
    case CombineOp::bxor: return {.name = "bxor", .floating = false, .booleans = true, .on_gpu = false};
  }
  return {.name = "?"};
}
constexpr std::string_view name_of(CombineOp op) { return traits_of(op).name; }

enum class CollectiveKind : std::uint8_t {
  barrier,
  bcast,
  reduce,
  allreduce,
  gather,
  scatter,
  allgather,
  reduce_scatter,
  alltoall
};

// What a rank sends or receives: nothing, `count` elements, its own of the `counts`, or those of all ranks in their order.
enum class BufferPart : std::uint8_t { none, count, own, all };

// What a kind of call has.
struct CollectiveTraits {
  std::string_view name, nonblocking;
  BufferPart in = BufferPart::none, out = BufferPart::none;
  bool from_root = false;  // only the root sends
  bool to_root = false;    // only the root gets
  bool reduces = false;

  constexpr bool rooted() const { return from_root || to_root; }
  // One per rank, instead of one for all.
  constexpr bool counts() const { return in == BufferPart::own || in == BufferPart::all; }
};
constexpr CollectiveTraits traits_of(CollectiveKind kind) {
  using enum BufferPart;
  switch (kind) {
    case CollectiveKind::barrier: return {.name = "barrier", .nonblocking = "ibarrier"};
    case CollectiveKind::bcast: return {.name = "bcast", .nonblocking = "ibcast", .in = count, .out = count, .from_root = true};
    case CollectiveKind::reduce:
      return {.name = "reduce", .nonblocking = "ireduce", .in = count, .out = count, .to_root = true, .reduces = true};
    case CollectiveKind::allreduce:
      return {.name = "allreduce", .nonblocking = "iallreduce", .in = count, .out = count, .reduces = true};
    case CollectiveKind::gather: return {.name = "gather", .nonblocking = "igather", .in = own, .out = all, .to_root = true};
    case CollectiveKind::scatter: return {.name = "scatter", .nonblocking = "iscatter", .in = all, .out = own, .from_root = true};
    case CollectiveKind::allgather: return {.name = "allgather", .nonblocking = "iallgather", .in = own, .out = all};
    case CollectiveKind::reduce_scatter:
      return {.name = "reduce_scatter", .nonblocking = "ireduce_scatter", .in = all, .out = own, .reduces = true};
    case CollectiveKind::alltoall: return {.name = "alltoall", .nonblocking = "ialltoall", .in = all, .out = all};
  }
  return {.name = "?", .nonblocking = "?"};
}
constexpr std::string_view name_of(CollectiveKind kind) { return traits_of(kind).name; }

// The arguments of the function of Transport that has the kind's name.
struct Collective {
  CollectiveKind kind = CollectiveKind::allreduce;
  const void* in = nullptr;  // bcast: unused
  void* out = nullptr;
  DType type = DType::uint8;
  CombineOp op = CombineOp::sum;
  int root = -1;
  std::int64_t count = 0;                     // where all ranks' parts are alike
  std::span<const std::int64_t> counts = {};  // one per rank; of alltoall what goes there
  std::span<const std::int64_t> receive_counts = {};
};

// Elements of a buffer, from `first` on.
struct BufferSlice {
  std::int64_t first = 0, count = 0;
};
// What rank `rank`, whose arguments these are, sends to `peer`, itself included: of `in`, or of bcast's `out`.
BufferSlice sent_slice(const Collective& call, int rank, int peer);
// Where in its `out` it gets what `peer` sends it. Reductions combine what comes from all peers in one place.
BufferSlice received_slice(const Collective& call, int rank, int peer);

// Elements that a rank hands in, and that it gets.
struct MovedElements {
  std::int64_t in = 0, out = 0;
};
MovedElements moved_elements(const Collective& call, int rank);

// An Error if op does not take that type, and for uint16.
void check_reduction(std::string_view call, DType type, CombineOp op);
// An Error with that name in brackets if a count is negative, the root no rank, or the type not one to reduce.
void check_collective(std::string_view name, const Collective& call, int size);

// A call as its rank makes it: blocking, non-blocking, or on the way to something else.
struct Call : Collective {
  std::string_view name;
};
// "allreduce(4 float32, sum)"
std::string describe(const Call& call);
// Of all ranks, in their order: empty if the calls fit together; else the error's text.
std::string disagreement(std::span<const Call* const> calls) noexcept;

}  // namespace mpigrad

#endif
