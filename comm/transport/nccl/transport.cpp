// NCCL's calls, and what they leave out: blocks of different lengths, gather and scatter, all-to-all, and messages.

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/transport/nccl/connection.h"
#include "comm/transport/transport_checks.h"
#include "framework/cuda/check.h"
#include "framework/error.h"

namespace mpigrad {
namespace nccl {
namespace {

using namespace transport_checks;
using Counts = std::span<const std::int64_t>;

// Moved as bytes, all types alike.
std::size_t bytes_of(std::int64_t count, DType type) { return static_cast<std::size_t>(count * size_of(type)); }
const std::byte* at(const void* data, std::int64_t elements, DType type) {
  return static_cast<const std::byte*>(data) + elements * size_of(type);
}
std::byte* at(void* data, std::int64_t elements, DType type) { return static_cast<std::byte*>(data) + elements * size_of(type); }

ncclDataType_t type_of(DType type) {
  switch (type) {
    case DType::float32: return ncclFloat32;
    case DType::float64: return ncclFloat64;
    case DType::bfloat16: return ncclBfloat16;
    case DType::float16: return ncclFloat16;
    case DType::int64: return ncclInt64;
    case DType::int32: return ncclInt32;
    case DType::uint8:
    case DType::boolean: return ncclUint8;  // of booleans max is "or", min is "and"
    case DType::int16: break;
  }
  fail("[nccl] there are no reductions of {}", name_of(type));
}

ncclRedOp_t op_of(Reduction op) {
  switch (op) {
    case Reduction::sum: return ncclSum;
    case Reduction::prod: return ncclProd;
    case Reduction::max: return ncclMax;
    case Reduction::min: return ncclMin;
  }
  return ncclSum;
}

bool all_equal(Counts counts) { return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end(); }

// What NCCL has been given; complete in the order of the GPU's work.
class Pending final : public PendingOperation {
 public:
  explicit Pending(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {
    done_.record(connection_->stream());
  }
  ~Pending() override {
    try {
      wait();
    } catch (...) {  // the next call meets the same failure
    }
  }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  void wait() override {
    if (!std::exchange(waited_, true)) done_.hold(cuda::compute_stream());
  }
  bool test() override {
    connection_->check_asynchronous();
    return waited_ || done_.reached();
  }

 private:
  std::shared_ptr<Connection> connection_;
  cuda::Event done_;
  bool waited_ = false;
};

class NcclTransport final : public Transport {
 public:
  explicit NcclTransport(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

  std::string_view name() const override { return "nccl"; }
  int rank() const override { return host().rank(); }
  int size() const override { return host().size(); }
  int node_rank() const override { return host().node_rank(); }
  int node_size() const override { return host().node_size(); }
  int max_tag() const override { return host().max_tag(); }
  bool any_thread() const override { return false; }
  bool capturable() override { return true; }
  bool loses_nan() const override { return true; }  // its kernels use fmin and fmax
  void abort(int code) override { host().abort(code); }
  void barrier() override { host().barrier(); }

  void broadcast(void* data, std::int64_t count, DType type, int root) override {
    check_count("broadcast", count);
    check_rank("broadcast", "root", root, size());
    run({.kind = CollectiveKind::broadcast, .out = data, .type = type, .root = root, .count = count});
  }
  void allreduce(const void* in, void* out, std::int64_t count, DType type, Reduction op) override {
    check_count("allreduce", count);
    check_reduction("allreduce", type, op);
    run({.kind = CollectiveKind::allreduce, .in = in, .out = out, .type = type, .op = op, .count = count});
  }
  void reduce(const void* in, void* out, std::int64_t count, DType type, Reduction op, int root) override {
    check_count("reduce", count);
    check_reduction("reduce", type, op);
    check_rank("reduce", "root", root, size());
    run({.kind = CollectiveKind::reduce, .in = in, .out = out, .type = type, .op = op, .root = root, .count = count});
  }
  void allgather(const void* in, void* out, Counts counts, DType type) override {
    check_counts("allgather", counts, size());
    run({.kind = CollectiveKind::allgather, .in = in, .out = out, .type = type, .counts = counts});
  }
  void reduce_scatter(const void* in, void* out, Counts counts, DType type, Reduction op) override {
    check_counts("reduce_scatter", counts, size());
    check_reduction("reduce_scatter", type, op);
    run({.kind = CollectiveKind::reduce_scatter, .in = in, .out = out, .type = type, .op = op, .counts = counts});
  }
  void alltoall(const void* in, Counts send_counts, void* out, Counts receive_counts, DType type) override {
    check_counts("alltoall", send_counts, size());
    check_counts("alltoall", receive_counts, size());
    run({.kind = CollectiveKind::alltoall,
         .in = in,
         .out = out,
         .type = type,
         .counts = send_counts,
         .receive_counts = receive_counts});
  }

  void gather(const void* in, void* out, Counts counts, DType type, int root) override {
    check_counts("gather", counts, size());
    check_rank("gather", "root", root, size());
    const auto me = index(rank());
    issue("gather", [&](ncclComm_t comm, cuda::Stream stream) {
      if (rank() != root) return send(comm, stream, in, counts[me], type, root);
      for (int r = 0; r < size(); ++r) {
        auto* part = at(out, offset(counts, index(r)), type);
        if (r == root) copy(stream, part, in, counts[me], type);
        else receive(comm, stream, part, counts[index(r)], type, r);
      }
    })->wait();
  }
  void scatter(const void* in, void* out, Counts counts, DType type, int root) override {
    check_counts("scatter", counts, size());
    check_rank("scatter", "root", root, size());
    const auto me = index(rank());
    issue("scatter", [&](ncclComm_t comm, cuda::Stream stream) {
      if (rank() != root) return receive(comm, stream, out, counts[me], type, root);
      for (int r = 0; r < size(); ++r) {
        const auto* part = at(in, offset(counts, index(r)), type);
        if (r == root) copy(stream, out, part, counts[me], type);
        else send(comm, stream, part, counts[index(r)], type, r);
      }
    })->wait();
  }

  std::unique_ptr<PendingOperation> start(const Collective& call) override {
    check_collective(call, size());
    return issue(name_of(call.kind), [&](ncclComm_t comm, cuda::Stream stream) { give(call, comm, stream); });
  }

  // NCCL matches messages between two ranks in the order of the calls, and within a group those to one peer keep their order (its
  // manual, "Point-to-point communication"). Both ends of a round sort theirs by tag, those of one tag in posting order.
  std::unique_ptr<PendingOperation> start_round(std::span<const Message> sends, std::span<const Message> receives,
                                                DType type) override {
    check_messages(sends, size(), max_tag());
    check_messages(receives, size(), max_tag());
    const auto out = sorted(sends), in = sorted(receives);
    return issue("round of messages", [&](ncclComm_t comm, cuda::Stream stream) {
      to_itself(stream, out, in, type);
      for (const auto& message : out)
        if (message.peer != rank()) send(comm, stream, message.data, message.count, type, message.peer);
      for (const auto& message : in)
        if (message.peer != rank()) receive(comm, stream, message.data, message.count, type, message.peer);
    });
  }

  void exchange(std::span<const Message>, std::span<const Message>, DType) override { refuse(); }
  std::unique_ptr<PendingOperation> start_exchange(std::span<const Message>, std::span<const Message>, DType) override {
    refuse();
  }
  std::unique_ptr<PendingReceive> start_receive(const Message&, DType) override { refuse(); }

  // A new unique id, because ncclCommSplit would need ranks that are not members.
  std::shared_ptr<Transport> subgroup(std::span<const int> ranks) override {
    return nccl_transport(host().subgroup(ranks), connection_->lane());
  }
  std::shared_ptr<Transport> split(int color, int key) override {
    auto part = host().split(color, key);
    const bool is_member = part != nullptr;
    auto connection = std::make_shared<Connection>(std::move(part), *connection_, color, key);
    return is_member ? std::make_shared<NcclTransport>(std::move(connection)) : nullptr;
  }
  std::shared_ptr<Transport> duplicate() override {
    return std::make_shared<NcclTransport>(std::make_shared<Connection>(host().duplicate(), *connection_, 0, rank()));
  }
  std::shared_ptr<Transport> control() override { return host().duplicate(); }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  Transport& host() const { return connection_->host(); }
  [[noreturn]] static void refuse() {
    fail(
        "[nccl] messages with tags and wildcards go through the host's transport; NCCL moves rounds, which all ranks take part "
        "in");
  }

  template <class Calls>
  std::unique_ptr<PendingOperation> issue(std::string_view call, const Calls& calls) {
    connection_->issue(call, calls);
    return std::make_unique<Pending>(connection_);
  }
  void run(const Collective& call) {
    // Without the i of the non-blocking call's name.
    issue(name_of(call.kind).substr(1), [&](ncclComm_t comm, cuda::Stream stream) { give(call, comm, stream); })->wait();
  }
  void check(ncclResult_t code, const char* what) { connection_->check(code, what); }

  // Nothing is sent and received by both ends alike.
  void send(ncclComm_t comm, cuda::Stream stream, const void* data, std::int64_t count, DType type, int peer) {
    if (count > 0) check(ncclSend(data, bytes_of(count, type), ncclUint8, peer, comm, cuda::native(stream)), "ncclSend");
  }
  void receive(ncclComm_t comm, cuda::Stream stream, void* data, std::int64_t count, DType type, int peer) {
    if (count > 0) check(ncclRecv(data, bytes_of(count, type), ncclUint8, peer, comm, cuda::native(stream)), "ncclRecv");
  }
  static void copy(cuda::Stream stream, void* to, const void* from, std::int64_t count, DType type) {
    if (count > 0 && to != from) cuda::copy(to, from, count * size_of(type), stream);
  }

  void give(const Collective& c, ncclComm_t comm, cuda::Stream stream) {
    const auto native = cuda::native(stream);
    const auto me = index(rank());
    switch (c.kind) {
      case CollectiveKind::broadcast:
        if (c.count > 0)
          check(ncclBroadcast(c.out, c.out, bytes_of(c.count, c.type), ncclUint8, c.root, comm, native), "ncclBroadcast");
        return;
      case CollectiveKind::reduce:
        if (c.count > 0)
          check(ncclReduce(c.in, c.out, static_cast<std::size_t>(c.count), type_of(c.type), op_of(c.op), c.root, comm, native),
                "ncclReduce");
        return;
      case CollectiveKind::allreduce:
        if (c.count > 0)
          check(ncclAllReduce(c.in, c.out, static_cast<std::size_t>(c.count), type_of(c.type), op_of(c.op), comm, native),
                "ncclAllReduce");
        return;
      case CollectiveKind::allgather:
        if (all_equal(c.counts)) {
          if (c.counts[0] > 0)
            check(ncclAllGather(c.in, c.out, bytes_of(c.counts[0], c.type), ncclUint8, comm, native), "ncclAllGather");
          return;
        }
        for (int r = 0; r < size(); ++r) {
          if (c.counts[index(r)] == 0) continue;
          auto* part = at(c.out, offset(c.counts, index(r)), c.type);
          check(ncclBroadcast(r == rank() ? c.in : part, part, bytes_of(c.counts[index(r)], c.type), ncclUint8, r, comm, native),
                "ncclBroadcast");
        }
        return;
      case CollectiveKind::reduce_scatter:
        if (all_equal(c.counts)) {
          if (c.counts[0] > 0)
            check(
                ncclReduceScatter(c.in, c.out, static_cast<std::size_t>(c.counts[0]), type_of(c.type), op_of(c.op), comm, native),
                "ncclReduceScatter");
          return;
        }
        for (int r = 0; r < size(); ++r)
          if (c.counts[index(r)] > 0)
            check(ncclReduce(at(c.in, offset(c.counts, index(r)), c.type), r == rank() ? c.out : nullptr,
                             static_cast<std::size_t>(c.counts[index(r)]), type_of(c.type), op_of(c.op), r, comm, native),
                  "ncclReduce");
        return;
      case CollectiveKind::alltoall:
        require(c.counts[me] == c.receive_counts[me], "[alltoall] rank {} sends {} {} to rank {}, which expects {}", me,
                c.counts[me], name_of(c.type), me, c.receive_counts[me]);
        for (int r = 0; r < size(); ++r) {
          const auto* out = at(c.in, offset(c.counts, index(r)), c.type);
          auto* in = at(c.out, offset(c.receive_counts, index(r)), c.type);
          if (r == rank()) {
            copy(stream, in, out, c.counts[me], c.type);
            continue;
          }
          send(comm, stream, out, c.counts[index(r)], c.type, r);
          receive(comm, stream, in, c.receive_counts[index(r)], c.type, r);
        }
        return;
    }
  }

  static std::vector<Message> sorted(std::span<const Message> messages) {
    std::vector<Message> result(messages.begin(), messages.end());
    std::stable_sort(result.begin(), result.end(), [](const Message& a, const Message& b) { return a.tag < b.tag; });
    return result;
  }
  // Messages to oneself: the k-th that is sent is the k-th that is received.
  void to_itself(cuda::Stream stream, const std::vector<Message>& out, const std::vector<Message>& in, DType type) const {
    const auto mine = [&](const Message& message) { return message.peer == rank(); };
    auto source = std::find_if(out.begin(), out.end(), mine), target = std::find_if(in.begin(), in.end(), mine);
    while (source != out.end() && target != in.end()) {
      require(source->tag == target->tag && source->count == target->count,
              "[exchange] rank {} sent {} {} with tag {} to itself and expects {} with tag {}", rank(), source->count,
              name_of(type), source->tag, target->count, target->tag);
      copy(stream, target->data, source->data, source->count, type);
      source = std::find_if(source + 1, out.end(), mine), target = std::find_if(target + 1, in.end(), mine);
    }
    require(source == out.end() && target == in.end(),
            "[exchange] rank {} does not receive as many messages as it sends to itself", rank());
  }

  std::shared_ptr<Connection> connection_;
};

}  // namespace
}  // namespace nccl

std::shared_ptr<Transport> nccl_transport(std::shared_ptr<Transport> host, Lane lane) {
  return std::make_shared<nccl::NcclTransport>(std::make_shared<nccl::Connection>(std::move(host), lane));
}

}  // namespace mpigrad
