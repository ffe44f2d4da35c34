#pragma once
// Tensors and orders that differ between ranks.

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "tests/support/distributed.h"

namespace mpigrad::testing {

// A different tensor on each rank.
inline Tensor own(const Communicator& comm, const Shape& shape, std::uint64_t seed) {
  return global_tensor(shape, 1000 * seed + static_cast<std::uint64_t>(comm.rank()));
}

inline std::vector<std::size_t> shuffled(std::size_t n, Dice& dice) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (auto i = n; i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(dice(0, static_cast<std::int64_t>(i) - 1))]);
  return order;
}
inline Dice dice_of_rank(const Communicator& comm, std::uint64_t seed) {
  return Dice(1000 * seed + static_cast<std::uint64_t>(comm.rank()) + 1);
}

}  // namespace mpigrad::testing
