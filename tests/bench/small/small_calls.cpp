// Microseconds of calls with tiny tensors of float32: the cost of a call, not of its arithmetic.
//
//   build/tests/small_calls [ROUNDS]     next to tests/bench/small/small.sh PYTHON, which runs PyTorch's in turns
//
// add: 16 elements; matmul: 8 x 8; conv: a 3^3 kernel on a 4^3 volume of one channel. For each: the call, the call on a tape, and
// the call on a tape with its gradient. Prints `NAME SECONDS` lines, medians of ROUNDS rounds.

#include <cstdlib>
#include <functional>
#include <vector>

#include "comm/distributed/distributed.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "tests/bench/small/median_seconds.h"

using namespace mpigrad;

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  if (rounds < 1) return fmt::print("small_calls [ROUNDS]\n"), 2;
  const auto numbers = [](const Shape& shape, std::uint64_t key) { return random_uniform(shape, {.key = key}, -1, 1); };
  struct Case {
    const char* name;
    Tensor a, b;
    std::function<Tensor(const Tensor&, const Tensor&)> f;
  };
  for (const auto& c : {Case{"add", numbers({16}, 1), numbers({16}, 2), [](auto&a, auto&b) { return a + b; }},
                        Case{"matmul", numbers({8, 8}, 1), numbers({8, 8}, 2), [](auto&a, auto&b) { return matmul(a, b); }},
                        Case{"conv", numbers({1, 4, 4, 4, 1}, 1), numbers({1, 3, 3, 3, 1}, 2),
                             [](auto&a, auto&b) { return conv(a, b, {.padding = 1}); }}}) {
    const Tensor a = constant(c.a), b = constant(c.b), x = c.a.as_variable(), y = c.b.as_variable();
    fmt::print("{} {:.9f}\n", c.name, median_seconds(rounds, [&] { c.f(a, b); }));
    fmt::print("{}_recorded {:.9f}\n", c.name, median_seconds(rounds, [&] {
                 Tape tape;
                 c.f(x, y);
               }));
    fmt::print("{}_gradient {:.9f}\n", c.name, median_seconds(rounds, [&] {
                 Tape tape;
                 tape.gradient(sum(c.f(x, y)), {x, y});
               }));
  }
}
