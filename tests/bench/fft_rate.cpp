// Fourier transforms of a cube of real numbers on one rank next to FFTW's own multi-dimensional ones, with the same threads, in
// turns: seconds (medians) and ratios. Asked: at most 1.6 times ESTIMATE's seconds at 256^3.
//
//   build/tests/fft_rate [SIDE [REPETITIONS]]
//
// OMP_NUM_THREADS sets the threads. A plan of MEASURE, whose bits may change from run to run, is printed as well. On several
// ranks, which share the cube in slabs, it prints the seconds of the slowest one, to be run next to fft_peer.py (mpi4py-fft).
// Asked on two ranks: at most 1.25 times its seconds.

#include <fftw3.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <vector>

#include "comm/check/stacked.h"
#include "comm/collectives/collectives.h"
#include "comm/fft/fft.h"
#include "models/train/session.h"
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

using namespace mpigrad;

void on_slabs(Session& session, int n, int repetitions) {
  auto& world = session.world().transport();
  const auto slabs = split_layout(session.grid({.depth = session.ranks()}), Shape{n, n, n}, {-1, 0});
  const Tensor x = random_uniform(slabs->global, {.key = 1}, -1, 1, DType::float64, slabs);
  std::vector<double> forward, back;
  double difference = 0;
  for (int i = 0; i <= repetitions; ++i) {  // the first is not counted
    Tensor half, again;
    const auto slowest = [&](const std::function<void()>& f) {
      world.barrier();
      double seconds = seconds_of(f);
      world.allreduce(&seconds, &seconds, 1, DType::float64, CombineOp::max);
      return seconds;
    };
    const double there = slowest([&] { half = rfft(x, {0, 1, 2}); });
    const double home = slowest([&] { again = irfft(half, {0, 1, 2}, n); });
    difference = std::max(difference, largest_difference(again.without_layout(), x.without_layout()));
    if (i > 0) forward.push_back(there), back.push_back(home);
  }
  if (session.rank() == 0)
    fmt::print("{} ranks, {}^3 float64: rfft {:.4f} s, irfft {:.4f} s; there and back differs by {:.1e}\n", session.ranks(), n,
               median(forward), median(back), difference);
}

void on_one_rank(int n, int repetitions) {
  const int threads = omp_get_max_threads();
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

}  // namespace

int main(int argc, char** argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 256, repetitions = argc > 2 ? std::atoi(argv[2]) : 5;
  if (n < 1 || repetitions < 1) return fmt::print("fft_rate [SIDE [REPETITIONS]]\n"), 2;
  return mpigrad::run(argc, argv, [&](Session& session) {
    if (session.ranks() > 1) on_slabs(session, n, repetitions);
    else on_one_rank(n, repetitions);
  });
}
