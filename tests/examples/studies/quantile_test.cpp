// Quantiles of measurements.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "framework/base/error.h"
#include "models/trainer/tool/quantile.h"

namespace mpigrad::tool {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST_CASE("quantiles lie on lines between neighbours") {
  CHECK(median({4, 1, 3, 2}) == doctest::Approx(2.5));
  CHECK(median({5, 1, 3}) == 3);
  CHECK(quantile({4, 1, 3, 2}, 0) == 1);
  CHECK(quantile({4, 1, 3, 2}, 1) == 4);
  CHECK(quantile({0, 10}, 0.3) == doctest::Approx(3));
  CHECK(std::isnan(median({})));
  CHECK(std::isnan(median({1, std::nan("")})));
  CHECK_THROWS_AS(quantile({1}, 1.1), Error);
}

TEST_CASE("quantiles of values of which some are infinite") {
  CHECK(median({1, infinity, infinity}) == infinity);
  CHECK(median({infinity, infinity}) == infinity);
  CHECK(median({1, infinity}) == infinity);
  CHECK(median({2, 1, infinity}) == 2);
  CHECK(quantile({1, 2, infinity}, 0.25) == doctest::Approx(1.5));
}

}  // namespace
}  // namespace mpigrad::tool
