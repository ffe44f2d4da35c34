#pragma once
// A transport that forwards every call to another one; base class of transports that watch or change calls. It overrides every
// virtual function of Transport: if one is missing, the derived classes are abstract. Used inside comm only.

#include <memory>
#include <utility>

#include "comm/transport/transport.h"

namespace mpigrad {

class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::shared_ptr<Transport> inner) : Transport(place_of(*inner)), inner_(std::move(inner)) {}

  int max_tag() const override { return inner_->max_tag(); }
  bool any_thread() const override { return inner_->any_thread(); }
  const Transport& underlying() const override { return inner_->underlying(); }
  void abort(int code) override { inner_->abort(code); }
  void require_same(std::string_view what, const HostBytes& data) override { inner_->require_same(what, data); }
  bool loses_nan() const override { return inner_->loses_nan(); }
  bool capturable() override { return inner_->capturable(); }
  std::shared_ptr<Transport> control() override { return inner_->control(); }
  std::shared_ptr<Transport> subgroup(std::span<const int> ranks) override { return wrap(inner_->subgroup(ranks)); }
  std::shared_ptr<Transport> split(int color, int key) override {
    auto made = inner_->split(color, key);
    return made ? wrap(std::move(made)) : nullptr;
  }
  std::shared_ptr<Transport> duplicate() override { return wrap(inner_->duplicate()); }

  void perform(const Collective& call) override { inner_->perform(call); }
  Pending begin(const Collective& call) override { return inner_->begin(call); }
  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    inner_->exchange(sends, receives, type);
  }
  Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return inner_->start_exchange(sends, receives, type);
  }
  Pending start_round(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return inner_->start_round(sends, receives, type);
  }
  Pending start_receive(const Message& message, DType type) override { return inner_->start_receive(message, type); }

  Transport& inner() const { return *inner_; }
  const std::shared_ptr<Transport>& shared_inner() const { return inner_; }

 protected:
  ForwardingTransport(const Place& place, std::shared_ptr<Transport> inner) : Transport(place), inner_(std::move(inner)) {}

  // Wraps a transport made from the inner one (never null) in the same way as this one.
  virtual std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const = 0;

 private:
  std::shared_ptr<Transport> inner_;
};

}  // namespace mpigrad
