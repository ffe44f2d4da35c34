#include "models/trainer/ranks/silent_transport.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "comm/collectives/collectives.h"
#include "comm/transport/forwarding.h"

namespace mpigrad {
namespace {

class SilentTransport final : public ForwardingTransport {
 public:
  SilentTransport(std::shared_ptr<Transport> inner, Silence left) : ForwardingTransport(std::move(inner)), left_(left) {}

  void perform(const Collective& call) override {
    give_own_part(call);
    if (left_ == Silence::waiting) inner().barrier();
  }
  Pending begin(const Collective& call) override {
    give_own_part(call);
    return left_ == Silence::waiting ? inner().start({.kind = CollectiveKind::barrier}) : Pending();
  }
  Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return started(sends, receives, type, &Transport::start_exchange);
  }
  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    start_exchange(sends, receives, type).wait();
  }
  Pending start_round(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return started(sends, receives, type, &Transport::start_round);
  }
  Pending start_receive(const Message& message, DType type) override {
    clear(message, type);
    return left_ == Silence::waiting ? inner().start_receive(shortened(message), type) : Pending();
  }

 private:
  // Fills the result with this rank's own part, as far as this rank has it.
  void give_own_part(const Collective& call) const {
    if (call.out == nullptr || block_traits_of(call.kind).in_place) return;
    const auto from = sent_slice(call, rank(), rank()), to = received_slice(call, rank(), rank());
    const auto item = size_of(call.type);
    auto* out = static_cast<std::byte*>(call.out);
    const auto* own = static_cast<const std::byte*>(call.in) + from.first * item;
    const auto all = moved_elements(call, rank()).out, end = to.first + to.count;
    const auto clear = [&](std::int64_t first, std::int64_t last) {
      if (last > first) std::memset(out + first * item, 0, static_cast<std::size_t>((last - first) * item));
    };
    if (to.count > 0) std::memmove(out + to.first * item, own, static_cast<std::size_t>(to.count * item));  // may be in place
    clear(0, to.first), clear(end, all);
  }

  Pending started(std::span<const Message> sends, std::span<const Message> receives, DType type,
                  decltype(&Transport::start_exchange) start) {
    for (const auto& message : receives) clear(message, type);
    if (left_ == Silence::nothing) return {};
    const auto shorter = [](std::span<const Message> messages) {
      std::vector<Message> result(messages.begin(), messages.end());
      std::transform(result.begin(), result.end(), result.begin(), shortened);
      return result;
    };
    return (inner().*start)(shorter(sends), shorter(receives), type);
  }
  static Message shortened(Message message) {
    message.count = std::min<std::int64_t>(message.count, 1);
    return message;
  }
  static void clear(const Message& message, DType type) {
    if (message.count > 0) std::memset(message.data, 0, static_cast<std::size_t>(message.count * size_of(type)));
  }
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const override {
    return std::make_shared<SilentTransport>(std::move(made), left_);
  }

  const Silence left_;
};

}  // namespace

std::shared_ptr<Transport> silent_transport(std::shared_ptr<Transport> inner, Silence left) {
  return std::make_shared<SilentTransport>(std::move(inner), left);
}

}  // namespace mpigrad
