// Signals during ops, such as those of batch systems, timers and profilers, change nothing.

#include <doctest/doctest.h>
#include <omp.h>
#include <sys/time.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <vector>

#include "comm/distributed/distributed.h"
#include "ops/linear/matmul.h"
#include "ops/random/random.h"

using namespace mpigrad;

namespace {

volatile std::sig_atomic_t arrived = 0;
extern "C" void count_signal(int) { arrived = arrived + 1; }

// Sends a signal every 100 us while in scope.
class Alarms {
 public:
  Alarms() {
    struct sigaction action {};
    action.sa_handler = count_signal;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, &before_);
    const itimerval often{{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  ~Alarms() {
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
  }

 private:
  struct sigaction before_ {};
};

}  // namespace

TEST_CASE("signals: also where teams of threads shrink and grow") {
  const auto a = random_normal({512, 300}, {.key = 1}), b = random_normal({300, 32}, {.key = 2});
  const auto expected = matmul(a, b).to_vector();
  const int threads = omp_get_max_threads();
  double most = 0;
  {
    const Alarms alarms;
    for (int n = 0; n < 2000; ++n) {
      omp_set_num_threads(1 + n % 5);
      // A smaller team: the other threads end, and the threads of the next team are new.
      double sum = 0;
#pragma omp parallel for num_threads(1 + (n / 3) % 4) reduction(+ : sum)
      for (int i = 0; i < 1000; ++i) sum += i;
      most = std::max(most, sum);
      (void)matmul(a, b);
    }
  }
  omp_set_num_threads(threads);
  CHECK(most == 499500);
  CHECK(matmul(a, b).to_vector() == expected);
}

TEST_CASE("signals: products and convolutions are what they are without") {
  const auto normal = [](const Shape& shape, std::uint64_t key) { return random_normal(shape, {.key = key}); };
  const auto a = normal({512, 300}, 1), b = normal({300, 32}, 2), x = normal({1, 6, 7, 8, 5}, 3), w = normal({6, 3, 3, 3, 5}, 4),
             one = normal({2, 2048}, 5), wide = normal({2048, 128}, 6);
  const std::vector<std::function<Tensor()>> ops{[&] { return matmul(a, b); }, [&] { return matmul(one, wide); },
                                                 [&] { return conv(x, w, {.padding = 1}); }};
  for (std::size_t i = 0; i < ops.size(); ++i) {
    CAPTURE(i);
    const auto expected = ops[i]().to_vector();
    arrived = 0;
    const Alarms alarms;
    int others = 0;
    for (int n = 0; n < 300; ++n) others += ops[i]().to_vector() != expected ? 1 : 0;
    CHECK(others == 0);
    while (arrived < 5) (void)ops[i]();  // signals do arrive, between two calls
  }
}
