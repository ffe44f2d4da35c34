#include "comm/transport/silent_transport.h"

#include <cstring>

#include "comm/transport/forwarding.h"

namespace mpigrad {
namespace {

class SilentTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  void perform(const Collective& call) override {
    if (call.out == nullptr || call.in == call.out || call.kind == CollectiveKind::bcast) return;
    const auto from = sent_slice(call, rank(), rank()), to = received_slice(call, rank(), rank());
    const auto item = size_of(call.type);
    auto* out = static_cast<std::byte*>(call.out);
    const auto* own = static_cast<const std::byte*>(call.in) + from.first * item;
    const auto* place = out + to.first * item;
    const auto all = moved_elements(call, rank()).out;
    const bool in_place = own == place;  // the smaller buffer is a part of the larger one
    if (!in_place && all > 0) std::memset(out, 0, static_cast<std::size_t>(all * item));
    if (!in_place && to.count > 0) std::memcpy(out + to.first * item, own, static_cast<std::size_t>(to.count * item));
  }
  Pending begin(const Collective& call) override {
    perform(call);
    return {};
  }
  Pending start_exchange(std::span<const Message>, std::span<const Message> receives, DType type) override {
    for (const auto& message : receives) clear(message, type);
    return {};
  }
  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    start_exchange(sends, receives, type);
  }
  Pending start_round(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return start_exchange(sends, receives, type);
  }
  Pending start_receive(const Message& message, DType type) override {
    clear(message, type);
    return {};
  }

 private:
  static void clear(const Message& message, DType type) {
    if (message.count > 0) std::memset(message.data, 0, static_cast<std::size_t>(message.count * size_of(type)));
  }
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const override {
    return std::make_shared<SilentTransport>(std::move(made));
  }
};

}  // namespace

std::shared_ptr<Transport> silent_transport(std::shared_ptr<Transport> inner) {
  return std::make_shared<SilentTransport>(std::move(inner));
}

}  // namespace mpigrad
