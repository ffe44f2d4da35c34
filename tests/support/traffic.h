#pragma once
// Counts the elements that algorithms which move as little as possible send for what a rank calls: of n elements on P ranks
// allgather and reduce_scatter n (P - 1) / P on each, allreduce twice that; uneven blocks exactly.

#include <atomic>
#include <memory>
#include <numeric>

#include "comm/communicator.h"
#include "comm/transport/forwarding.h"

namespace mpigrad::testing {

// Of one type, so that what ranks tell each other about sizes does not count. Sums over all ranks.
struct Traffic {
  DType type = DType::float64;
  std::atomic<std::int64_t> messages{0}, gathered{0}, scattered{0}, reduced{0}, other{0};
  std::int64_t all() const { return messages + gathered + scattered + reduced + other; }
};

class CountingTransport : public ForwardingTransport {
 public:
  CountingTransport(std::shared_ptr<Transport> inner, Traffic& traffic)
      : ForwardingTransport(std::move(inner)), traffic_(traffic) {}

  void perform(const Collective& call) override { note(call), ForwardingTransport::perform(call); }
  Pending begin(const Collective& call) override { return note(call), ForwardingTransport::begin(call); }
  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    note(sends, type), ForwardingTransport::exchange(sends, receives, type);
  }
  Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return note(sends, type), ForwardingTransport::start_exchange(sends, receives, type);
  }
  Pending start_round(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return note(sends, type), ForwardingTransport::start_round(sends, receives, type);
  }

 protected:
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const override {
    return std::make_shared<CountingTransport>(std::move(made), traffic_);
  }

 private:
  void note(std::span<const Message> sends, DType type) {
    if (type != traffic_.type) return;
    for (const auto& message : sends) traffic_.messages += message.count;
  }
  void note(const Collective& call) {
    if (call.type != traffic_.type) return;
    const auto others = [&] {
      return std::accumulate(call.counts.begin(), call.counts.end(), std::int64_t{0}) -
             call.counts[static_cast<std::size_t>(rank())];
    };
    switch (call.kind) {
      case CollectiveKind::allgather: traffic_.gathered += others(); break;
      case CollectiveKind::reduce_scatter: traffic_.scattered += others(); break;
      // 2 n (P - 1) in all, which need not divide by P: noted on one rank.
      case CollectiveKind::allreduce: traffic_.reduced += rank() == 0 ? 2 * call.count * (size() - 1) : 0; break;
      default: traffic_.other += call.count;
    }
  }
  Traffic& traffic_;
};

inline Communicator counted(const Communicator& bare, Traffic& traffic) {
  return Communicator(std::make_shared<CountingTransport>(bare.shared_transport(), traffic));
}

}  // namespace mpigrad::testing
