// Checks between ranks on the `threads` transport: each misuse is the same error on all ranks; what they cost nothing without;
// how they are asked for. Under mpiexec: misuse_mpi_test.cpp.

#include "comm/checks.h"

#include <atomic>
#include <mutex>
#include <set>

#include "comm/adjoint_check.h"
#include "comm/reduction_mode.h"
#include "comm/scan.h"
#include "tests/support/misuse.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// Runs on watched ranks; every rank's error, "" for none.
std::multiset<std::string> errors_of(int ranks, const CheckOptions& options, const RankBody& body) {
  std::multiset<std::string> errors;
  std::mutex mutex;
  run_threads(ranks, [&](std::shared_ptr<Transport> transport) {
    const Communicator comm(watched(transport, options));
    auto text = error_text([&] { body(comm); });
    std::lock_guard lock(mutex);
    errors.insert(std::move(text));
  });
  return errors;
}

constexpr CheckOptions everything{.signatures = 1, .same = 1};

}  // namespace

TEST_CASE("checks: each misuse is the same error on all ranks") {
  for (const auto& misuse : misuses())
    for (const int ranks : {2, 3, 5}) {
      CAPTURE(misuse.name);
      const auto errors = errors_of(ranks, everything, misuse.run);
      REQUIRE(static_cast<int>(errors.size()) == ranks);
      const auto& first = *errors.begin();
      CAPTURE(first);
      CHECK(static_cast<int>(errors.count(first)) == ranks);
      CHECK(first.starts_with("[checks] "));
      CHECK(first.find(misuse.expected) != std::string::npos);
    }
}

TEST_CASE("checks: the ranks that agree are named together") {
  const auto errors =
      errors_of(5, everything, [](const Communicator& comm) { barrier(comm.rank() == 3 ? comm.duplicate() : comm); });
  CHECK(errors.begin()->find("ranks 0-2,4: barrier; rank 3: duplicate") != std::string::npos);
}

TEST_CASE("checks: a right program passes, on sub-communicators and at second order") {
  for (const int ranks : {1, 2, 3, 4}) {
    const auto errors = errors_of(ranks, everything, [](const Communicator& comm) {
      const auto half = comm.split(comm.rank() % 2, comm.rank());
      for (const auto& c : {comm, half})
        require_adjoint(
            "several calls",
            [&](const Tensors& in) {
              return Tensors{allreduce(in[0], c), scan(in[0], c), wait(iallreduce(in[0], c)), shift(in[0], c)};
            },
            {ones({3}, DType::float64)}, c);
    });
    CHECK(errors.count("") == static_cast<std::size_t>(ranks));
  }
}

TEST_CASE("checks: every K-th call is compared") {
  std::atomic<int> passed = 0;
  const auto errors = errors_of(2, {.signatures = 3}, [&](const Communicator& comm) {
    const auto root = [&](int calls) { return comm.rank() == 1 && calls == 0 ? 1 : 0; };
    // The communicator's own duplicate was its first call, so the second one here is compared.
    std::string text;
    for (int call = 0; call < 3 && text.empty(); ++call) text = error_text([&] { bcast(ones({2}), comm, root(1 - call)); });
    if (text.starts_with("[checks]")) ++passed;
  });
  CHECK(passed == 2);
}

TEST_CASE("checks: without any nothing is wrapped; the dry transport never is") {
  run_threads(2, [](const std::shared_ptr<Transport>& plain) {
    require(watched(plain, {}) == plain, "[test] wrapped without need");
    const auto once = watched(plain, everything);
    require(once != plain && watched(once, everything) == once, "[test] wrapped twice");
  });
  const auto dry = dry_world(0, 2, nullptr);
  CHECK(watched(dry, everything) == dry);
}

TEST_CASE("checks: what MPIGRAD_CHECKS may say") {
  const auto options = parse_checks("signatures=10,same,trace,watchdog=2.5");
  CHECK(options.signatures == 10);
  CHECK(options.same == 1);
  CHECK(options.trace);
  CHECK(options.watchdog == 2.5);
  CHECK_FALSE(parse_checks(""));
  for (const char* text :
       {"signature", "signatures=0", "signatures=-1", "signatures=1.5", "signatures=", "same=x", "trace=1", "watchdog",
        "watchdog=0", "watchdog=-3", "watchdog=nan", "watchdog=1e", ",signatures", "signatures,", "signatures,,trace"}) {
    CAPTURE(text);
    CHECK(error_text([&] { parse_checks(text); }).starts_with("[checks] MPIGRAD_CHECKS knows"));
  }
}
