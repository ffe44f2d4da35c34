#pragma once
// Defaults shared by the transports that move the data themselves; a new transport derives from this class and overrides the
// rest. Used inside comm only.

#include <limits>

#include "comm/transport/transport.h"

namespace mpigrad {

class BasicTransport : public Transport {
 public:
  int max_tag() const override { return std::numeric_limits<int>::max(); }
  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    start_exchange(sends, receives, type).wait();
  }
  Pending start_round(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return start_exchange(sends, receives, type);
  }
  std::shared_ptr<Transport> control() override { return duplicate(); }
  bool loses_nan() const override { return false; }
  bool capturable() override { return size() == 1; }
  bool any_thread() const override { return true; }
  const Transport& underlying() const override { return *this; }
  void require_same(std::string_view /* what */, const HostBytes& /* data */) override {}

 protected:
  explicit BasicTransport(const Place& place) : Transport(place) {}
};

}  // namespace mpigrad
