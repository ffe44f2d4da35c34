// The nccl transport. Adds to NCCL's calls: blocks of different lengths, gather and scatter, all-to-all, and messages.

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/transport/basic_transport.h"
#include "comm/transport/nccl/connection.h"
#include "comm/transport/transport_checks.h"
#include "framework/base/error.h"
#include "framework/cuda/check.h"

namespace mpigrad {
namespace nccl {
namespace {

using namespace transport_checks;
using Counts = std::span<const std::int64_t>;

// Data are moved as bytes, whatever their type.
std::size_t bytes_of(std::int64_t count, DType type) { return static_cast<std::size_t>(count * size_of(type)); }
const std::byte* at(const void* data, std::int64_t elements, DType type) {
  return static_cast<const std::byte*>(data) + elements * size_of(type);
}
std::byte* at(void* data, std::int64_t elements, DType type) { return static_cast<std::byte*>(data) + elements * size_of(type); }

// Complex numbers are added as their parts.
std::size_t parts_in(std::int64_t count, DType type) { return static_cast<std::size_t>(count * parts_of(type)); }
ncclDataType_t type_of(DType type) {
  switch (real_type(type)) {
    case DType::float32: return ncclFloat32;
    case DType::float64: return ncclFloat64;
    case DType::bfloat16: return ncclBfloat16;
    case DType::float16: return ncclFloat16;
    case DType::int64: return ncclInt64;
    case DType::int32: return ncclInt32;
    case DType::uint8:
    case DType::boolean: return ncclUint8;  // of booleans max is "or", min is "and"
    case DType::int16:
    case DType::uint16:
    case DType::complex64:
    case DType::complex128: break;
  }
  fail("[nccl] there are no reductions of {}", name_of(type));
}

ncclRedOp_t op_of(CombineOp op) {
  if (op == CombineOp::sum) return ncclSum;
  if (op == CombineOp::prod) return ncclProd;
  if (op == CombineOp::max) return ncclMax;
  if (op == CombineOp::min) return ncclMin;
  fail("[nccl] there is no reduction by {}", name_of(op));
}

bool all_equal(Counts counts) { return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end(); }

// Calls that NCCL has been given; they are complete in the order of the GPU's work.
class Given final : public PendingWork {
 public:
  explicit Given(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {
    done_.record(connection_->stream());
  }
  void wait() override { done_.hold(cuda::compute_stream()); }
  void drop() noexcept override {
    try {
      wait();
    } catch (...) {  // the next call throws the same error
    }
  }
  bool test() override {
    connection_->check_asynchronous();
    return done_.reached();
  }

 private:
  std::shared_ptr<Connection> connection_;
  cuda::Event done_;
};

class NcclTransport final : public BasicTransport {
 public:
  explicit NcclTransport(std::shared_ptr<Connection> connection)
      : BasicTransport(named(connection->host())), connection_(std::move(connection)) {}

  int max_tag() const override { return host().max_tag(); }
  bool any_thread() const override { return false; }
  bool capturable() override { return true; }
  bool loses_nan() const override { return true; }  // its kernels use fmin and fmax
  void abort(int code) override { host().abort(code); }

  void perform(const Collective& call) override {
    if (call.kind == CollectiveKind::barrier) return host().perform(call);
    give(name_of(call.kind), call).wait();
  }
  Pending begin(const Collective& call) override {
    if (call.kind == CollectiveKind::barrier) return host().begin(call);
    return give(traits_of(call.kind).nonblocking, call);
  }

  // NCCL matches messages between two ranks in the order of the calls, and within a group messages to one peer keep their order
  // (its manual, "Point-to-point communication"). Both ends of a round sort their messages by tag, and those of one tag in
  // posting order.
  Pending start_round(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
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

  Pending start_exchange(std::span<const Message>, std::span<const Message>, DType) override { refuse(); }
  Pending start_receive(const Message&, DType) override { refuse(); }

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
  Transport& host() const { return connection_->host(); }
  static Place named(const Transport& host) {
    Place place = place_of(host);
    place.name = "nccl";
    return place;
  }
  [[noreturn]] static void refuse() {
    fail(
        "[nccl] messages with tags and wildcards go through the host's transport; NCCL moves rounds, which all ranks take part "
        "in");
  }

  template <class Calls>
  Pending issue(std::string_view call, const Calls& calls) {
    connection_->issue(call, calls);
    return pending<Given>(connection_);
  }
  Pending give(std::string_view name, const Collective& call) {
    return issue(name, [&](ncclComm_t comm, cuda::Stream stream) { give(call, comm, stream); });
  }
  void check(ncclResult_t code, const char* what) { connection_->check(code, what); }

  // Empty messages are skipped at both ends.
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
      case CollectiveKind::bcast:
        if (c.count > 0)
          check(ncclBroadcast(c.out, c.out, bytes_of(c.count, c.type), ncclUint8, c.root, comm, native), "ncclBroadcast");
        return;
      case CollectiveKind::reduce:
        if (c.count > 0)
          check(ncclReduce(c.in, c.out, parts_in(c.count, c.type), type_of(c.type), op_of(c.op), c.root, comm, native),
                "ncclReduce");
        return;
      case CollectiveKind::allreduce:
        if (c.count > 0)
          check(ncclAllReduce(c.in, c.out, parts_in(c.count, c.type), type_of(c.type), op_of(c.op), comm, native),
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
            check(ncclReduceScatter(c.in, c.out, parts_in(c.counts[0], c.type), type_of(c.type), op_of(c.op), comm, native),
                  "ncclReduceScatter");
          return;
        }
        for (int r = 0; r < size(); ++r)
          if (c.counts[index(r)] > 0)
            check(ncclReduce(at(c.in, offset(c.counts, index(r)), c.type), r == rank() ? c.out : nullptr,
                             parts_in(c.counts[index(r)], c.type), type_of(c.type), op_of(c.op), r, comm, native),
                  "ncclReduce");
        return;
      case CollectiveKind::alltoall:
        require(c.counts[me] == c.receive_counts[me], "[alltoall] rank {} sends {} {} to rank {}, which expects {}", me,
                c.counts[me], name_of(c.type), me, c.receive_counts[me]);
        [[fallthrough]];
      case CollectiveKind::gather:
      case CollectiveKind::scatter:
        for (int r = 0; r < size(); ++r) {
          const auto out = sent_slice(c, rank(), r), in = received_slice(c, rank(), r);
          if (r == rank()) {
            copy(stream, at(c.out, in.first, c.type), at(c.in, out.first, c.type), in.count, c.type);
            continue;
          }
          send(comm, stream, at(c.in, out.first, c.type), out.count, c.type, r);
          receive(comm, stream, at(c.out, in.first, c.type), in.count, c.type, r);
        }
        return;
      case CollectiveKind::barrier: return;  // done by the host transport
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
