// Random cases of every communication operation on the `threads` transport. MPIGRAD_FUZZ_SEED=N runs only case N.

#include "tests/comm/fuzz/adjoint_fuzz.h"
#include "tests/support/all_tests.h"

#include "tests/support/progress.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

TEST_CASE("adjoint fuzz: values, gradients and second derivatives of every operation") {
  const std::uint64_t cases = all_tests() ? 200000 : 10000;
  const auto asked = asked_fuzz_seed();
  const auto run = [](std::uint64_t seed) {
    check_on_ranks(static_cast<int>(seed % 7) + 1, "fuzz", [&](const Communicator& comm) { run_fuzz_case(comm, seed); });
  };
  if (asked >= 0) return run(static_cast<std::uint64_t>(asked));
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    if (seed % 1000 == 0) note_progress("adjoint fuzz, from seed " + std::to_string(seed));
    run(seed);
  }
}
