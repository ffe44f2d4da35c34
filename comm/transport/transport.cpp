#include "comm/transport/transport.h"

#include <atomic>

namespace mpigrad {
namespace {
std::atomic<std::int64_t> of_several_ranks{0};  // number of existing transports
}

Transport::Transport(const Place& place) : place_(place) {
  if (place.size > 1) ++of_several_ranks;
}
Transport::~Transport() {
  if (place_.size > 1) --of_several_ranks;
}

bool has_several_ranks() { return of_several_ranks > 0; }

void Transport::run(const Collective& call) {
  check_collective(name_of(call.kind), call, size());
  const detail::WaitTimer timer(&detail::Waited::collectives);
  perform(call);
}
Pending Transport::start(const Collective& call) {
  check_collective(traits_of(call.kind).nonblocking, call, size());
  auto started = begin(call);
  started.count_as_collective();
  return started;
}

void Transport::barrier() { run({.kind = CollectiveKind::barrier}); }
void Transport::bcast(void* data, std::int64_t count, DType type, int root) {
  run({.kind = CollectiveKind::bcast, .out = data, .type = type, .root = root, .count = count});
}
void Transport::allreduce(const void* in, void* out, std::int64_t count, DType type, CombineOp op) {
  run({.kind = CollectiveKind::allreduce, .in = in, .out = out, .type = type, .op = op, .count = count});
}
void Transport::reduce(const void* in, void* out, std::int64_t count, DType type, CombineOp op, int root) {
  run({.kind = CollectiveKind::reduce, .in = in, .out = out, .type = type, .op = op, .root = root, .count = count});
}
void Transport::gather(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root) {
  run({.kind = CollectiveKind::gather, .in = in, .out = out, .type = type, .root = root, .counts = counts});
}
void Transport::scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root) {
  run({.kind = CollectiveKind::scatter, .in = in, .out = out, .type = type, .root = root, .counts = counts});
}
void Transport::allgather(const void* in, void* out, std::span<const std::int64_t> counts, DType type) {
  run({.kind = CollectiveKind::allgather, .in = in, .out = out, .type = type, .counts = counts});
}
void Transport::reduce_scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, CombineOp op) {
  run({.kind = CollectiveKind::reduce_scatter, .in = in, .out = out, .type = type, .op = op, .counts = counts});
}
void Transport::alltoall(const void* in, std::span<const std::int64_t> send_counts, void* out,
                         std::span<const std::int64_t> receive_counts, DType type) {
  run({.kind = CollectiveKind::alltoall,
       .in = in,
       .out = out,
       .type = type,
       .counts = send_counts,
       .receive_counts = receive_counts});
}

Pending Transport::start_allreduce(const void* in, void* out, std::int64_t count, DType type, CombineOp op) {
  return start({.kind = CollectiveKind::allreduce, .in = in, .out = out, .type = type, .op = op, .count = count});
}
Pending Transport::start_sum_of_blocks(const void* in, void* out, std::span<const std::int64_t> counts, DType type) {
  return start({.kind = CollectiveKind::reduce_scatter, .in = in, .out = out, .type = type, .counts = counts});
}
Pending Transport::start_allgather(const void* in, void* out, std::span<const std::int64_t> counts, DType type) {
  return start({.kind = CollectiveKind::allgather, .in = in, .out = out, .type = type, .counts = counts});
}

}  // namespace mpigrad
