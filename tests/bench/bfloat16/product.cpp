#include "tests/bench/bfloat16/product.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "framework/engine/cost.h"
#include "framework/engine/tape.h"
#include "ops/linear/matmul.h"
#include "ops/random/random.h"
#include "tests/bench/bfloat16/bare_product.h"

namespace mpigrad::bench {

double product_rate(const std::string& precision) {
  constexpr std::int64_t n = 2048;
  const Untaped scope;
  auto product = precision == "bfloat16" ? bare_bfloat16_product(n) : std::function<void()>();
  if (!product) product = [a = random_normal({n, n}, {1, 1}), b = random_normal({n, n}, {1, 2})] { (void)matmul(a, b); };
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const double start = detail::seconds_now();
    product();
    best = std::min(best, detail::seconds_now() - start);
  }
  return 2.0 * n * n * n / best;
}

}  // namespace mpigrad::bench
