// Random splits into training and test samples.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "framework/base/error.h"
#include "framework/tensor/random.h"
#include "models/data/data.h"
#include "models/data/loader/steps.h"

namespace mpigrad::data {

Split split_train_test(std::int64_t n, double fraction, std::uint64_t seed) {
  require(n >= 2 && fraction > 0 && fraction < 1, "[data] {} samples cannot be split with a test fraction of {}", n, fraction);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  shuffle(order, Philox{seed, 0}.child(2));
  const auto count = std::clamp<std::int64_t>(std::llround(fraction * static_cast<double>(n)), 1, n - 1);
  Split split{{order.begin() + count, order.end()}, {order.begin(), order.begin() + count}};
  std::sort(split.train.begin(), split.train.end());
  std::sort(split.test.begin(), split.test.end());
  return split;
}

}  // namespace mpigrad::data
