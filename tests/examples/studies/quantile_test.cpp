// Quantiles of measurements, and folders that one process at a time has.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "examples/tool/folder_lock.h"
#include "examples/tool/quantile.h"
#include "framework/error.h"
#include "tests/support/files.h"

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

TEST_CASE("one lock of a folder at a time") {
  const testing::Folder folder;
  {
    const FolderLock lock(folder.path);
    CHECK_THROWS_WITH_AS(FolderLock(folder.path), doctest::Contains("another process is at work in"), Error);
  }
  const FolderLock again(folder.path);
  CHECK_THROWS_AS(FolderLock(folder.path / "none"), Error);
}

}  // namespace
}  // namespace mpigrad::tool
