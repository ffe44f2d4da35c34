#pragma once
// Counts the elements that optimal algorithms send for the collectives of a rank: for n elements on P ranks, allgather and
// reduce_scatter send n (P - 1) / P on each rank, allreduce twice that. Exact for uneven blocks, too.

#include <atomic>
#include <memory>
#include <numeric>

#include "comm/communicator.h"
#include "tests/support/noting_transport.h"

namespace mpigrad::testing {

// Elements of one type only, so that messages about sizes do not count. Sums over all ranks.
struct Traffic {
  DType type = DType::float64;
  std::atomic<std::int64_t> messages{0}, gathered{0}, scattered{0}, reduced{0}, other{0};
  std::int64_t all() const { return messages + gathered + scattered + reduced + other; }
};

class CountingTransport final : public NotingTransport<CountingTransport, Traffic&> {
 public:
  using NotingTransport::NotingTransport;
  void note(std::span<const Message> sends, DType type) {
    if (type != notes_.type) return;
    for (const auto& message : sends) notes_.messages += message.count;
  }
  void note(const Collective& call) {
    if (call.type != notes_.type) return;
    const auto others = [&] {
      return std::accumulate(call.counts.begin(), call.counts.end(), std::int64_t{0}) -
             call.counts[static_cast<std::size_t>(rank())];
    };
    switch (call.kind) {
      case CollectiveKind::allgather: notes_.gathered += others(); break;
      case CollectiveKind::reduce_scatter: notes_.scattered += others(); break;
      // 2 n (P - 1) over all ranks need not be divisible by P, so it is noted on one rank.
      case CollectiveKind::allreduce: notes_.reduced += rank() == 0 ? 2 * call.count * (size() - 1) : 0; break;
      default: notes_.other += call.count;
    }
  }
};

inline Communicator counted(const Communicator& bare, Traffic& traffic) {
  return Communicator(std::make_shared<CountingTransport>(bare.shared_transport(), traffic));
}

}  // namespace mpigrad::testing
