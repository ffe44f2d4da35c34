#pragma once
// A transport that notes the calls of a rank before it passes them on.

#include <memory>
#include <span>
#include <utility>

#include "comm/transport/forwarding.h"

namespace mpigrad::testing {

// Derived has note(const Collective&) and note(std::span<const Message> sends, DType). Both write to notes_, a reference or a
// pointer that all communicators made from this one share.
template <class Derived, class Notes>
class NotingTransport : public ForwardingTransport {
 public:
  NotingTransport(std::shared_ptr<Transport> inner, Notes notes) : ForwardingTransport(std::move(inner)), notes_(notes) {}

  void perform(const Collective& call) override { self().note(call), ForwardingTransport::perform(call); }
  Pending begin(const Collective& call) override { return self().note(call), ForwardingTransport::begin(call); }
  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    self().note(sends, type), ForwardingTransport::exchange(sends, receives, type);
  }
  Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return self().note(sends, type), ForwardingTransport::start_exchange(sends, receives, type);
  }
  Pending start_round(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return self().note(sends, type), ForwardingTransport::start_round(sends, receives, type);
  }

 protected:
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const override {
    return std::make_shared<Derived>(std::move(made), notes_);
  }
  Notes notes_;

 private:
  Derived& self() { return static_cast<Derived&>(*this); }
};

}  // namespace mpigrad::testing
