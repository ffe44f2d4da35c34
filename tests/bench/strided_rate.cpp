// The cost of copies between tensors and arrays with gaps (ops/views/strided_memory.h), in times of a plain copy.
//
//   strided_rate

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "ops/views/strided_memory.h"

using namespace mpigrad;

namespace {

double best_seconds(const std::function<void()>& f) {
  double best = 1e300;
  for (int repeat = 0; repeat < 15; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

int main() {
  constexpr std::int64_t n = 128, width = n + 2, fields = 5;
  std::vector<double> ghosted(width * width * width, 1), cells(n * n * n * fields, 1), target(n * n * n, 1);
  Tensor x = from_strided(target.data(), {n, n, n}, {n * n, n, 1}, DType::float64);
  auto* plain = x.mutable_data<double>();
  const double copied = best_seconds([&] { std::memcpy(target.data(), plain, static_cast<std::size_t>(x.bytes())); });
  const double taken = best_seconds([&] { x = from_strided(target.data(), {n, n, n}, {n * n, n, 1}, DType::float64); });
  const auto measure = [&](const char* what, double* first, const std::vector<std::int64_t>& strides) {
    const double in = best_seconds([&] { x = from_strided(first, {n, n, n}, strides, DType::float64); });
    const double out = best_seconds([&] { to_strided(x, first, strides); });
    fmt::print("{}: in {:.2f} ms ({:.1f} times a contiguous one), out {:.2f} ms ({:.1f} times memcpy)\n", what, 1e3 * in,
               in / taken, 1e3 * out, out / copied);
  };
  fmt::print("{} x {} x {} float64: memcpy {:.2f} ms, from_strided() of a contiguous array {:.2f} ms\n", n, n, n, 1e3 * copied,
             1e3 * taken);
  measure("interior of an array with ghost cells", &ghosted[static_cast<std::size_t>(width * width + width + 1)],
          {width * width, width, 1});
  measure("one of 5 fields per cell", cells.data(), {n * n * fields, n * fields, fields});
}
