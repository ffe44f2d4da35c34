#ifndef MPIGRAD_COMM_TRANSPORT_COLLECTIVE_H
#define MPIGRAD_COMM_TRANSPORT_COLLECTIVE_H
// Collective calls as data. A new kind needs a row of traits_of() and a case in each of the transports mpi (blocking and not) and
// nccl; buffer sizes, the transports threads and dry, device copies, staging and checks follow from the row. Its op
// (comm/collectives/collectives.h) calls Transport::run().

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "framework/tensor/dtype.h"

namespace mpigrad {

// On booleans max is "or" and min is "and". A new operation needs a value here, a row of traits_of(), and its implementation in
// comm/transport/combine.h and comm/transport/mpi/call.cpp.
enum class CombineOp : std::uint8_t { sum, max, min, prod, band, bor, bxor };

struct CombineTraits {
  std::string_view name;
  bool floating = true;   // takes floating-point numbers, too; every operation takes integers
  bool booleans = false;  // takes booleans, too
  bool on_gpu = true;     // computed on the GPU by the transports of GPUs; else the data go through the host
};
// The name and the properties of an operation.
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
// "sum", "max", ...
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

// The part of a buffer that a rank sends or receives: nothing, `count` elements, its own of the `counts`, or all ranks' in order.
enum class BufferPart : std::uint8_t { none, count, own, all };

// The properties of a kind of call.
struct CollectiveTraits {
  std::string_view name, nonblocking;
  BufferPart in = BufferPart::none, out = BufferPart::none;
  bool from_root = false;  // only the root sends
  bool to_root = false;    // only the root gets
  bool reduces = false;

  constexpr bool rooted() const { return from_root || to_root; }
  // True if there is one count per rank, instead of one count for all.
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
// The name of the blocking call: "barrier", "bcast", ...
constexpr std::string_view name_of(CollectiveKind kind) { return traits_of(kind).name; }

// The arguments of the function of Transport that has the kind's name.
struct Collective {
  CollectiveKind kind = CollectiveKind::allreduce;
  const void* in = nullptr;  // bcast: unused
  void* out = nullptr;
  DType type = DType::uint8;
  CombineOp op = CombineOp::sum;
  int root = -1;
  std::int64_t count = 0;                     // where all ranks' parts have the same size
  std::span<const std::int64_t> counts = {};  // one per rank; for alltoall the elements sent to it
  std::span<const std::int64_t> receive_counts = {};
};

// Elements of a buffer, from `first` on.
struct BufferSlice {
  std::int64_t first = 0, count = 0;
};
// The elements that rank `rank`, which passes these arguments, sends to `peer`, itself included: of `in`, or of bcast's `out`.
BufferSlice sent_slice(const Collective& call, int rank, int peer);
// The place in the `out` of `rank` for the elements from `peer`. Reductions combine the elements from all peers in one place.
BufferSlice received_slice(const Collective& call, int rank, int peer);

// The numbers of elements that a rank sends and receives.
struct MovedElements {
  std::int64_t in = 0, out = 0;
};
MovedElements moved_elements(const Collective& call, int rank);

// Error: op does not take that type (complex types: sum only), or the type is uint16.
void check_reduction(std::string_view call, DType type, CombineOp op);
// Error, with that name in brackets: a negative count, a root that is not a rank, or a type that cannot be reduced.
void check_collective(std::string_view name, const Collective& call, int size);

// A call with the name under which its rank made it: blocking, non-blocking, or as part of another operation.
struct Call : Collective {
  std::string_view name;
};
// "allreduce(4 float32, sum)"
std::string describe(const Call& call);
// Compares the calls of all ranks, in rank order: empty if they fit together; else the text of the error.
std::string disagreement(std::span<const Call* const> calls) noexcept;

}  // namespace mpigrad

#endif
