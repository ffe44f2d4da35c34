#include "models/simulation/differences.h"

#include "framework/base/error.h"

namespace mpigrad::fields {

std::vector<double> difference_weights(int derivative, int order) {
  require((derivative == 1 || derivative == 2) && order >= 2 && order <= 8 && order % 2 == 0,
          "[fields] first and second derivatives have orders 2, 4, 6 and 8: derivative {}, order {}", derivative, order);
  const int m = order / 2;
  std::vector<double> weights(static_cast<std::size_t>(order + 1), 0.0);
  const auto at = [&](int j) -> double& { return weights[static_cast<std::size_t>(m + j)]; };
  // (-1)^(j + 1) m!^2 / ((m - j)! (m + j)!), divided by j, or by j^2 / 2
  double factor = -1;
  for (int j = 1; j <= m; ++j) {
    factor *= -static_cast<double>(m - j + 1) / (m + j);
    at(j) = derivative == 1 ? factor / j : 2 * factor / (j * j);
    at(-j) = derivative == 1 ? -at(j) : at(j);
    if (derivative == 2) at(0) -= 2 * at(j);
  }
  return weights;
}

}  // namespace mpigrad::fields
