// Softmax over the last axis; sums in double, shifted by the row's maximum.

#include <algorithm>
#include <cmath>

#include "ops/kernel/parts.h"
#include "ops/softmax/softmax_kernels.h"

namespace mpigrad::cpu {

// y = exp(x - max x) / sum exp(x - max x)
template <class T>
void softmax(std::int64_t rows, std::int64_t n, const T* x, T* y) {
  if (n == 0) return;
  cpu::for_parts(rows, rows * n > 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* xs = x + r * n;
      T* ys = y + r * n;
      const T largest = *std::max_element(xs, xs + n);
      double sum = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        ys[i] = std::exp(xs[i] - largest);
        sum += static_cast<double>(ys[i]);
      }
      const T scale = static_cast<T>(1.0 / sum);
      for (std::int64_t i = 0; i < n; ++i) ys[i] *= scale;
    }
  });
}

// y = x - max x - log sum exp(x - max x)
template <class T>
void log_softmax(std::int64_t rows, std::int64_t n, const T* x, T* y) {
  if (n == 0) return;
  cpu::for_parts(rows, rows * n > 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* xs = x + r * n;
      T* ys = y + r * n;
      const T largest = *std::max_element(xs, xs + n);
      double sum = 0;
      for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(std::exp(xs[i] - largest));
      const T shift = static_cast<T>(std::log(sum));
      for (std::int64_t i = 0; i < n; ++i) ys[i] = xs[i] - largest - shift;
    }
  });
}

template void softmax(std::int64_t, std::int64_t, const float*, float*);
template void softmax(std::int64_t, std::int64_t, const double*, double*);
template void log_softmax(std::int64_t, std::int64_t, const float*, float*);
template void log_softmax(std::int64_t, std::int64_t, const double*, double*);

}  // namespace mpigrad::cpu
