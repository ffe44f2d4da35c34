#include "comm/transport/device/staged.h"

#include <algorithm>
#include <utility>

#include "comm/transport/forwarding.h"

namespace mpigrad {
namespace {

using Bytes = DeviceMemory::Bytes;

// An operation of the inner transport, and the copies from the host to make when it is done.
class StagedPending final : public PendingWork {
 public:
  struct Copy {
    void* to = nullptr;
    const std::byte* from = nullptr;
    std::int64_t bytes = 0;
  };
  // The buffers outlive the operation, which is destroyed first.
  StagedPending(std::shared_ptr<DeviceMemory> memory, Bytes out, Bytes in, std::vector<Copy> copies, Pending operation)
      : memory_(std::move(memory)), out_(std::move(out)), in_(std::move(in)), copies_(std::move(copies)),
        operation_(std::move(operation)) {}

  void wait() override {
    operation_.wait();
    for (const auto& copy : copies_) memory_->to_device(copy.to, copy.from, copy.bytes);
    out_ = in_ = nullptr;
  }
  bool test() override { return operation_.test(); }
  void drop() noexcept override { operation_.cancel(); }
  Status status() const override { return operation_.status(); }

 private:
  std::shared_ptr<DeviceMemory> memory_;
  Bytes out_, in_;
  std::vector<Copy> copies_;
  Pending operation_;
};

class StagedTransport final : public ForwardingTransport {
 public:
  StagedTransport(std::shared_ptr<Transport> inner, std::shared_ptr<DeviceMemory> memory, const StagedOptions& options)
      : ForwardingTransport(std::move(inner)), memory_(std::move(memory)), options_(options) {}

  void perform(const Collective& call) override {
    if (hands_on(call)) return inner().perform(call);
    const auto hosted = this->hosted(call);
    inner().perform(hosted.call);
    memory_->to_device(call.out, hosted.call.out, hosted.arriving);
  }
  Pending begin(const Collective& call) override {
    if (hands_on(call)) return inner().begin(call);
    const auto hosted = this->hosted(call);
    auto operation = inner().begin(hosted.call);
    return pending<StagedPending>(
        memory_, hosted.in, hosted.out,
        std::vector<StagedPending::Copy>{{call.out, static_cast<const std::byte*>(hosted.call.out), hosted.arriving}},
        std::move(operation));
  }

  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    start_exchange(sends, receives, type).wait();
  }
  Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return start_messages(sends, receives, type, [&](auto s, auto r) { return inner().start_exchange(s, r, type); });
  }
  Pending start_round(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return start_messages(sends, receives, type, [&](auto s, auto r) { return inner().start_round(s, r, type); });
  }

  Pending start_receive(const Message& message, DType type) override {
    if (direct()) return inner().start_receive(message, type);
    const auto bytes = bytes_of(message.count, type);
    const auto in = room(bytes);
    Message hosted = message;
    hosted.data = in.get();
    auto operation = inner().start_receive(hosted, type);
    return pending<StagedPending>(memory_, nullptr, in, std::vector<StagedPending::Copy>{{message.data, in.get(), bytes}},
                                  std::move(operation));
  }

  std::shared_ptr<Transport> control() override { return inner().duplicate(); }

 private:
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const override {
    return staged(std::move(made), memory_, options_);
  }
  // 0 for a negative count, which the inner call will refuse.
  static std::int64_t bytes_of(std::int64_t count, DType type) { return std::max<std::int64_t>(count, 0) * size_of(type); }

  // True if device addresses are passed on; the device's preceding work is complete then.
  bool direct() const {
    if (options_.direct) memory_->synchronise();
    return options_.direct;
  }
  // A barrier has no buffers. A reduce is never direct: transports may copy the input of the root on the host.
  bool hands_on(const Collective& call) const {
    if (call.kind == CollectiveKind::barrier) return true;
    if (call.kind == CollectiveKind::reduce) return false;
    if (traits_of(call.kind).reduces) return options_.direct_reductions && !is_half(call.type) && direct();
    return direct();
  }

  // The same call in host memory, with a copy of this rank's input.
  struct Hosted {
    Collective call;
    Bytes in, out;
    std::int64_t arriving = 0;  // bytes
  };
  Hosted hosted(const Collective& call) const {
    const auto [in, out] = moved_elements(call, rank());
    const auto item = size_of(call.type);
    const bool broadcast = call.kind == CollectiveKind::bcast;  // input and output are the same buffer
    Hosted result{call, fetched(broadcast ? call.out : call.in, in * item), nullptr, out * item};
    // In place where input and output have the same length, which saves memory.
    result.out = in > 0 && (broadcast || call.kind == CollectiveKind::allreduce) ? result.in : room(out * item);
    result.call.in = result.in.get(), result.call.out = result.out.get();
    return result;
  }

  Bytes room(std::int64_t bytes) const { return bytes > 0 ? memory_->allocate_host(bytes) : nullptr; }
  Bytes fetched(const void* device, std::int64_t bytes) const {
    if (bytes == 0) return nullptr;
    auto host = room(bytes);
    memory_->to_host(host.get(), device, bytes);
    memory_->synchronise();
    return host;
  }

  // All messages of one side in one host buffer, each starting on its own cache line.
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
  Pending start_messages(std::span<const Message> sends, std::span<const Message> receives, DType type, const Start& start) {
    if (direct()) return start(sends, receives);
    const auto out = packed(sends, type), in = packed(receives, type);
    for (std::size_t i = 0; i < sends.size(); ++i)
      memory_->to_host(out.messages[i].data, sends[i].data, bytes_of(sends[i].count, type));
    if (out.buffer) memory_->synchronise();
    std::vector<StagedPending::Copy> copies;
    for (std::size_t i = 0; i < receives.size(); ++i)
      copies.push_back({receives[i].data, static_cast<const std::byte*>(in.messages[i].data), bytes_of(receives[i].count, type)});
    auto operation = start(std::span<const Message>(out.messages), std::span<const Message>(in.messages));
    return pending<StagedPending>(memory_, out.buffer, in.buffer, std::move(copies), std::move(operation));
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
