#include "models/train/restart/interval.h"

#include <cmath>

#include "framework/base/error.h"

namespace mpigrad {

double best_checkpoint_interval(double cost, double mtbf) {
  require(cost > 0 && mtbf > 0 && std::isfinite(cost) && std::isfinite(mtbf),
          "[checkpoint] a cost and a time between failures are positive, in seconds: {}, {}", cost, mtbf);
  if (cost >= 2 * mtbf) return mtbf;
  const double ratio = cost / (2 * mtbf);
  return std::sqrt(2 * cost * mtbf) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - cost;
}

}  // namespace mpigrad
