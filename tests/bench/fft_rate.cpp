// Fourier transforms of a cube of real numbers on one rank next to FFTW's own multi-dimensional ones, with the same threads, in
// turns: seconds (medians) and ratios. Asked: at most 1.6 times ESTIMATE's seconds at 256^3.
//
//   build/fft_rate [SIDE [REPETITIONS]]
//
// OMP_NUM_THREADS sets the threads. A plan of MEASURE, whose bits may change from run to run, is printed as well.

#include <fftw3.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <vector>

#include "ops/fft/fft.h"
#include "ops/random/random.h"

namespace {

double seconds_of(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  using namespace mpigrad;
  const int n = argc > 1 ? std::atoi(argv[1]) : 256, repetitions = argc > 2 ? std::atoi(argv[2]) : 5,
            threads = omp_get_max_threads();
  if (n < 1 || repetitions < 1) return fmt::print("fft_rate [SIDE [REPETITIONS]]\n"), 2;
#ifdef MPIGRAD_FFTW_THREADS
  fftw_init_threads();
  fftw_plan_with_nthreads(threads);
#else
  if (threads > 1) fmt::print("FFTW is linked without threads here and runs on one\n");
#endif
  Tensor x = random_uniform({n, n, n}, {.key = 1}, -1, 1, DType::float64);
  Tensor z({Shape{n, n, n / 2 + 1}, DType::complex128}), back({Shape{n, n, n}, DType::float64});
  auto* const modes = reinterpret_cast<fftw_complex*>(z.raw());
  auto* const numbers = reinterpret_cast<double*>(back.raw());
  std::vector<fftw_plan> plans;
  for (const unsigned flags : {FFTW_ESTIMATE, FFTW_MEASURE}) {
    std::copy_n(x.data<double>(), x.elements(), numbers);
    plans.push_back(fftw_plan_dft_r2c_3d(n, n, n, numbers, modes, flags));
    plans.push_back(fftw_plan_dft_c2r_3d(n, n, n, modes, numbers, flags));
  }
  std::copy_n(x.data<double>(), x.elements(), numbers);

  std::vector<std::vector<double>> seconds(6);
  double difference = 0;
  for (int i = 0; i <= repetitions; ++i) {  // the first is not counted
    Tensor half, again;
    std::vector<double> now;
    now.push_back(seconds_of([&] { half = local::rfft(x, {0, 1, 2}); }));
    now.push_back(seconds_of([&] { again = local::irfft(half, {0, 1, 2}, n); }));
    for (std::size_t plan = 0; plan < plans.size(); ++plan) now.push_back(seconds_of([&] { fftw_execute(plans[plan]); }));
    for (std::size_t k = 0; k < now.size() && i > 0; ++k) seconds[k].push_back(now[k]);
    for (std::int64_t j = 0; j < back.elements(); ++j)
      difference = std::max(difference, std::abs(again.data<double>()[j] - x.data<double>()[j]));
    std::copy_n(x.data<double>(), x.elements(), numbers);
  }
  fmt::print("{}^3 float64, {} threads, medians of {}; there and back differs by {:.1e}\n", n, threads, repetitions, difference);
  const char* names[] = {"rfft", "irfft"};
  for (std::size_t k = 0; k < 2; ++k) {
    const double ours = median(seconds[k]), estimate = median(seconds[2 + k]), measure = median(seconds[4 + k]);
    fmt::print("{:5}  {:.4f} s;  FFTW ESTIMATE {:.4f} s, ratio {:.2f};  MEASURE {:.4f} s, ratio {:.2f}\n", names[k], ours,
               estimate, ours / estimate, measure, ours / measure);
  }
  for (auto* plan : plans) fftw_destroy_plan(plan);
}
