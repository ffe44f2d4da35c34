#include "comm/transport/device/staged.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "comm/transport/forwarding.h"
#include "comm/transport/transport_checks.h"

namespace mpigrad {
namespace {

using transport_checks::check_counts;
using transport_checks::total;
using Bytes = DeviceMemory::Bytes;

// An operation of the inner transport, and where to copy from the host when it is done.
class StagedPending final : public PendingReceive {
 public:
  struct Copy {
    void* to = nullptr;
    const std::byte* from = nullptr;
    std::int64_t bytes = 0;
  };
  StagedPending(std::shared_ptr<DeviceMemory> memory, Bytes out, Bytes in)
      : memory_(std::move(memory)), out_(std::move(out)), in_(std::move(in)) {}
  ~StagedPending() override {
    if (!operation || done_ || std::uncaught_exceptions() > exceptions_) return;  // the operation itself knows what to do
    try {
      wait();
    } catch (...) {  // the next call meets the same failure
    }
  }
  StagedPending(const StagedPending&) = delete;
  StagedPending& operator=(const StagedPending&) = delete;

  std::vector<Copy> copies;

  void wait() override {
    if (done_) return;
    done_ = true;
    operation->wait();
    for (const auto& copy : copies) memory_->to_device(copy.to, copy.from, copy.bytes);
    out_ = in_ = nullptr;
  }
  bool test() override { return done_ || operation->test(); }
  void cancel() override {
    if (auto* receive = dynamic_cast<PendingReceive*>(operation.get())) receive->cancel();
    done_ = true;
  }
  Status status() const override {
    const auto* receive = dynamic_cast<const PendingReceive*>(operation.get());
    return receive ? receive->status() : Status();
  }

 private:
  std::shared_ptr<DeviceMemory> memory_;
  Bytes out_, in_;  // outlive the operation, which is destroyed first
  bool done_ = false;
  int exceptions_ = std::uncaught_exceptions();

 public:
  std::unique_ptr<PendingOperation> operation;
};

class StagedTransport final : public ForwardingTransport {
 public:
  StagedTransport(std::shared_ptr<Transport> inner, std::shared_ptr<DeviceMemory> memory, const StagedOptions& options)
      : ForwardingTransport(std::move(inner)), memory_(std::move(memory)), options_(options) {}

  void broadcast(void* data, std::int64_t count, DType type, int root) override {
    if (direct()) return inner().broadcast(data, count, type, root);
    const auto bytes = bytes_of(count, type);
    const auto host = rank() == root ? fetched(data, bytes) : room(bytes);
    inner().broadcast(host.get(), count, type, root);
    if (rank() != root) memory_->to_device(data, host.get(), bytes);
  }

  void allreduce(const void* in, void* out, std::int64_t count, DType type, Reduction op) override {
    if (direct(type)) return inner().allreduce(in, out, count, type, op);
    const auto bytes = bytes_of(count, type);
    const auto host = fetched(in, bytes);
    inner().allreduce(host.get(), host.get(), count, type, op);
    memory_->to_device(out, host.get(), bytes);
  }

  // Never direct: transports may copy the root's input on the host.
  void reduce(const void* in, void* out, std::int64_t count, DType type, Reduction op, int root) override {
    const auto bytes = bytes_of(count, type);
    const auto host = fetched(in, bytes), result = room(rank() == root ? bytes : 0);
    inner().reduce(host.get(), result.get(), count, type, op, root);
    if (rank() == root) memory_->to_device(out, result.get(), bytes);
  }

  void gather(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root) override {
    check_counts("gather", counts, size());
    if (direct()) return inner().gather(in, out, counts, type, root);
    const auto all = rank() == root ? total(counts) * size_of(type) : 0;
    const auto host = fetched(in, own(counts, type)), result = room(all);
    inner().gather(host.get(), result.get(), counts, type, root);
    memory_->to_device(out, result.get(), all);
  }

  void scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root) override {
    check_counts("scatter", counts, size());
    if (direct()) return inner().scatter(in, out, counts, type, root);
    const auto host = rank() == root ? fetched(in, total(counts) * size_of(type)) : room(0), result = room(own(counts, type));
    inner().scatter(host.get(), result.get(), counts, type, root);
    memory_->to_device(out, result.get(), own(counts, type));
  }

  void allgather(const void* in, void* out, std::span<const std::int64_t> counts, DType type) override {
    check_counts("allgather", counts, size());
    if (direct()) return inner().allgather(in, out, counts, type);
    const auto all = total(counts) * size_of(type);
    const auto host = fetched(in, own(counts, type)), result = room(all);
    inner().allgather(host.get(), result.get(), counts, type);
    memory_->to_device(out, result.get(), all);
  }

  void reduce_scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, Reduction op) override {
    check_counts("reduce_scatter", counts, size());
    if (direct(type)) return inner().reduce_scatter(in, out, counts, type, op);
    const auto host = fetched(in, total(counts) * size_of(type)), result = room(own(counts, type));
    inner().reduce_scatter(host.get(), result.get(), counts, type, op);
    memory_->to_device(out, result.get(), own(counts, type));
  }

  void alltoall(const void* in, std::span<const std::int64_t> send_counts, void* out,
                std::span<const std::int64_t> receive_counts, DType type) override {
    check_counts("alltoall", send_counts, size());
    check_counts("alltoall", receive_counts, size());
    if (direct()) return inner().alltoall(in, send_counts, out, receive_counts, type);
    const auto arriving = total(receive_counts) * size_of(type);
    const auto host = fetched(in, total(send_counts) * size_of(type)), result = room(arriving);
    inner().alltoall(host.get(), send_counts, result.get(), receive_counts, type);
    memory_->to_device(out, result.get(), arriving);
  }

  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    start_exchange(sends, receives, type)->wait();
  }
  std::unique_ptr<PendingOperation> start_exchange(std::span<const Message> sends, std::span<const Message> receives,
                                                   DType type) override {
    return start_messages(sends, receives, type, [&](auto s, auto r) { return inner().start_exchange(s, r, type); });
  }
  std::unique_ptr<PendingOperation> start_round(std::span<const Message> sends, std::span<const Message> receives,
                                                DType type) override {
    return start_messages(sends, receives, type, [&](auto s, auto r) { return inner().start_round(s, r, type); });
  }

  std::unique_ptr<PendingReceive> start_receive(const Message& message, DType type) override {
    if (direct()) return inner().start_receive(message, type);
    const auto bytes = bytes_of(message.count, type);
    auto in = room(bytes);
    auto pending = std::make_unique<StagedPending>(memory_, nullptr, in);
    Message hosted = message;
    hosted.data = in.get();
    pending->copies.push_back({message.data, in.get(), bytes});
    pending->operation = inner().start_receive(hosted, type);
    return pending;
  }

  std::unique_ptr<PendingOperation> start(const Collective& call) override {
    transport_checks::check_collective(call, size());
    const bool reduces = call.kind == CollectiveKind::allreduce || call.kind == CollectiveKind::reduce ||
                         call.kind == CollectiveKind::reduce_scatter;
    if (reduces ? call.kind != CollectiveKind::reduce && direct(call.type) : direct()) return inner().start(call);
    const bool root = rank() == call.root;
    const auto all = call.counts.empty() ? 0 : total(call.counts), mine = call.counts.empty() ? 0 : call.counts[index()];
    std::int64_t in = call.count, out = call.count;
    switch (call.kind) {
      case CollectiveKind::broadcast: in = root ? in : 0; break;
      case CollectiveKind::reduce: out = root ? out : 0; break;
      case CollectiveKind::allreduce: break;
      case CollectiveKind::allgather: in = mine, out = all; break;
      case CollectiveKind::reduce_scatter: in = all, out = mine; break;
      case CollectiveKind::alltoall: in = all, out = total(call.receive_counts); break;
    }
    const auto item = size_of(call.type);
    const bool broadcast = call.kind == CollectiveKind::broadcast;  // from and to the same buffer
    const auto from = fetched(broadcast ? call.out : call.in, in * item);
    const auto to = broadcast && root ? from : room(out * item);
    auto pending = std::make_unique<StagedPending>(memory_, from, to);
    if (!(broadcast && root)) pending->copies.push_back({call.out, to.get(), out * item});
    Collective hosted = call;
    hosted.in = from.get(), hosted.out = to.get();
    pending->operation = inner().start(hosted);
    return pending;
  }

  std::shared_ptr<Transport> subgroup(std::span<const int> ranks) override { return wrap(inner().subgroup(ranks)); }
  std::shared_ptr<Transport> split(int color, int key) override { return wrap(inner().split(color, key)); }
  std::shared_ptr<Transport> duplicate() override { return wrap(inner().duplicate()); }
  std::shared_ptr<Transport> control() override { return inner().duplicate(); }

 private:
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const {
    return made ? staged(std::move(made), memory_, options_) : nullptr;
  }
  std::size_t index() const { return static_cast<std::size_t>(rank()); }
  // Of what the inner call will refuse, nothing.
  static std::int64_t bytes_of(std::int64_t count, DType type) { return std::max<std::int64_t>(count, 0) * size_of(type); }
  std::int64_t own(std::span<const std::int64_t> counts, DType type) const { return counts[index()] * size_of(type); }

  // Whether device addresses are handed on; then what they hold is there.
  bool direct() const {
    if (options_.direct) memory_->synchronise();
    return options_.direct;
  }
  bool direct(DType type) const { return options_.direct_reductions && !is_half(type) && direct(); }

  Bytes room(std::int64_t bytes) const { return bytes > 0 ? memory_->allocate_host(bytes) : nullptr; }
  Bytes fetched(const void* device, std::int64_t bytes) const {
    if (bytes == 0) return nullptr;
    auto host = room(bytes);
    memory_->to_host(host.get(), device, bytes);
    memory_->synchronise();
    return host;
  }

  // All messages of one side in one host buffer, each on a cache line of its own.
  struct Packed {
    std::vector<Message> messages;
    Bytes buffer;
  };
  Packed packed(std::span<const Message> messages, DType type) const {
    constexpr std::int64_t line = 64;
    Packed result{{messages.begin(), messages.end()}, nullptr};
    std::int64_t bytes = 0;
    for (const auto& message : messages) bytes += (bytes_of(message.count, type) + line - 1) / line * line;
    result.buffer = room(bytes);
    std::byte* at = result.buffer.get();
    for (auto& message : result.messages) {
      message.data = at;
      if (at) at += (bytes_of(message.count, type) + line - 1) / line * line;
    }
    return result;
  }

  template <class Start>
  std::unique_ptr<PendingOperation> start_messages(std::span<const Message> sends, std::span<const Message> receives, DType type,
                                                   const Start& start) {
    if (direct()) return start(sends, receives);
    const auto out = packed(sends, type), in = packed(receives, type);
    for (std::size_t i = 0; i < sends.size(); ++i)
      memory_->to_host(out.messages[i].data, sends[i].data, bytes_of(sends[i].count, type));
    if (out.buffer) memory_->synchronise();
    auto pending = std::make_unique<StagedPending>(memory_, out.buffer, in.buffer);
    for (std::size_t i = 0; i < receives.size(); ++i)
      pending->copies.push_back(
          {receives[i].data, static_cast<const std::byte*>(in.messages[i].data), bytes_of(receives[i].count, type)});
    pending->operation = start(std::span<const Message>(out.messages), std::span<const Message>(in.messages));
    return pending;
  }

  std::shared_ptr<DeviceMemory> memory_;
  StagedOptions options_;
};

}  // namespace

std::shared_ptr<Transport> staged(std::shared_ptr<Transport> inner, std::shared_ptr<DeviceMemory> memory,
                                  const StagedOptions& options) {
  return std::make_shared<StagedTransport>(std::move(inner), std::move(memory), options);
}

}  // namespace mpigrad
