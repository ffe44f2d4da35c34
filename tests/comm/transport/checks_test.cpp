// Checks between ranks on the `threads` transport: each misuse is the same error on all ranks; disabled checks cost nothing;
// settings. For checks under mpiexec see misuse_mpi_test.cpp.

#include "comm/transport/watch/checks.h"

#include <atomic>
#include <mutex>
#include <set>

#include "comm/check/adjoint_check.h"
#include "comm/collectives/scan.h"
#include "comm/distributed/grid.h"
#include "comm/transport/environment.h"
#include "comm/transport/summation_mode.h"
#include "comm/transport/watch/call_board.h"
#include "framework/optim/optimizer.h"
#include "ops/reduce/reduce.h"
#include "tests/comm/transport/misuse.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// Runs the body on ranks with checks; returns the error of every rank, "" for none.
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

namespace {

// Two steps of an optimizer on parameters "replicated" and `name`, whose gradients differ between ranks.
template <class Optimizer>
void two_steps(const Communicator& comm, const std::string& name, const std::function<Tensor(const Tensor&)>& use,
               const std::function<Tensor(const Tensor&)>& made = {}) {
  const auto start = ones({3}, DType::float32);
  Parameters parameters;
  parameters.add("replicated", start, true);
  parameters.add(name, made ? made(start) : start, true);
  parameters.pack();
  Optimizer optimizer(parameters);
  const auto x = ones({3}, DType::float32) * static_cast<double>(comm.rank() + 1);
  for (int step = 0; step < 2; ++step) {
    Tape tape(parameters);
    const auto loss = sum(replicate(parameters[0].value, comm) * x) + sum(square(use(parameters[1].value)) * x);
    optimizer.step(tape.gradient(loss));
  }
}

}  // namespace

TEST_CASE("checks: weights that drift apart in a step are named, and what is meant to differ is not") {
  for (const int ranks : {2, 3}) {
    const auto steps = [&](const CheckOptions& options, const RankBody& body) {
      const auto errors = errors_of(ranks, options, body);
      CHECK(static_cast<int>(errors.count(*errors.begin())) == ranks);
      return *errors.begin();
    };
    // Bypasses replicate, and bypasses a layout.
    const auto plainly = [](const Tensor& w) { return w.without_layout(); };
    const auto drifting = [&](const Communicator& comm) { two_steps<SGD>(comm, "drifting", plainly); };
    const auto first = steps({.same = 1}, drifting);
    CHECK(has(first, "[checks] after step 1 of the optimizer: drifting is not the same on all"));
    CHECK(has(first, "the first of 1 parameters that are not, of 2"));
    CHECK(has(first, ranks == 2 ? "hashes: rank 0 " : "; rank 2 "));
    CHECK(has(steps({.same = 2}, drifting), "after step 2"));
    CHECK(steps({.same = 3}, drifting).empty());
    CHECK(steps({.signatures = 1}, drifting).empty());
    const auto laid_out = [](const Communicator& comm) {
      return [grid = make_grid(comm, {.sample = comm.size()})](const Tensor& w) {
        return w.with_layout(replicated_layout(grid, w.shape()));
      };
    };
    const auto around_layout =
        steps({.same = 1}, [&](const Communicator& comm) { two_steps<SGD>(comm, "drifting", plainly, laid_out(comm)); });
    CHECK_MESSAGE(has(around_layout, "drifting is not the same on all"), around_layout);

    // Correct programs: everything replicated; a block of a parameter, by its layout; a list without replicated parameters.
    CHECK(steps({.same = 1}, [](const Communicator& comm) {
            two_steps<Adam>(comm, "fine", [&](const Tensor& w) { return replicate(w, comm); });
          }).empty());
    CHECK(steps({.same = 1}, [&](const Communicator& comm) {
            const auto grid = make_grid(comm, {.sample = comm.size()});
            const auto layout = split_layout(grid, {3 * comm.size()}, {0, -1, -1, -1});
            two_steps<SGD>(comm, "part", plainly, [&](const Tensor& w) { return w.with_layout(layout); });
          }).empty());
    CHECK(steps({.same = 1}, [](const Communicator& comm) {
            Parameters parameters;
            parameters.add("own", ones({2}, DType::float64) * static_cast<double>(comm.rank() + 1), true);
            parameters.pack();
            SGD sgd(parameters);
            for (int step = 0; step <= comm.rank(); ++step) {  // even the numbers of steps differ
              Tape tape(parameters);
              sgd.step(tape.gradient(sum(parameters[0].value)));
            }
          }).empty());
  }
}

TEST_CASE("checks: every K-th call is compared") {
  std::atomic<int> passed = 0;
  const auto errors = errors_of(2, {.signatures = 3}, [&](const Communicator& comm) {
    const auto root = [&](int calls) { return comm.rank() == 1 && calls == 0 ? 1 : 0; };
    // The duplication of the communicator was its first call, so the second one here is compared.
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

TEST_CASE("settings: what differs between ranks is the same error on all of them, before anything depends on it") {
  const auto errors = [](int ranks, const std::function<Setting(int)>& of_rank) {
    std::multiset<std::string> texts;
    std::mutex mutex;
    run_threads(ranks, [&](const std::shared_ptr<Transport>& plain) {
      const std::vector<Setting> settings{{"MPIGRAD_FIRST", "", ""}, of_rank(plain->rank()), {"MPIGRAD_LAST", "x", "x"}};
      auto text = error_text([&] { require_same_settings(*plain, settings); });
      std::lock_guard lock(mutex);
      texts.insert(std::move(text));
    });
    return texts;
  };
  const auto all = [](int ranks, const std::string& text) {
    std::multiset<std::string> texts;
    for (int r = 0; r < ranks; ++r) texts.insert(text);
    return texts;
  };
  const auto setting = [](const std::string& value) { return Setting{"MPIGRAD_CHECKS", value, value}; };
  CHECK(errors(1, [&](int) { return setting("a"); }) == all(1, ""));
  CHECK(errors(4, [&](int) { return setting("signatures"); }) == all(4, ""));
  CHECK(errors(4, [&](int r) { return setting(r == 2 ? "signatures" : ""); }) ==
        all(4, "[launch] MPIGRAD_CHECKS must be the same on all ranks: ranks 0-1,3 without; rank 2 \"signatures\""));
  CHECK(errors(2, [&](int r) { return setting(r == 0 ? "a" : "ab\nc"); }) ==
        all(2, R"([launch] MPIGRAD_CHECKS must be the same on all ranks: rank 0 "a"; rank 1 "ab\nc")"));
  const auto many = errors(7, [&](int r) { return setting(std::to_string(r)); });
  CHECK(many.count(*many.begin()) == 7);
  CHECK(many.begin()->ends_with("; and 3 other values"));
  // The output may differ between ranks if the compared values do not.
  CHECK(errors(2, [&](int r) { return Setting{"MPIGRAD_CHECKS", "", r == 0 ? "trace" : ""}; }) == all(2, ""));
}

TEST_CASE("checks: a watchdog of training counts from the first step, and not in phases that take their time") {
  run_threads(1, [](const std::shared_ptr<Transport>&) {
    const detail::CallBoard board;
    REQUIRE(board.state().counts == 0);
    Parameters parameters;
    parameters.add("w", ones({2}), false);
    parameters.pack();
    SGD optimizer(parameters, {.learning_rate = 0.1});
    REQUIRE(board.state().counts == 0);
    optimizer.step(Gradients({zeros({2})}));
    REQUIRE(board.state().counts == 1);
    {
      const detail::SlowPhase evaluation;
      const detail::SlowPhase checkpoint;
      REQUIRE(board.state().counts == 0);
    }
    REQUIRE(board.state().counts == 1);
  });
}

TEST_CASE("checks: what MPIGRAD_CHECKS may say") {
  const auto options = parse_checks("signatures=10,same,trace,watchdog=2.5");
  CHECK(options.signatures == 10);
  CHECK(options.same == 1);
  CHECK(options.trace);
  CHECK(options.watchdog == 2.5);
  CHECK_FALSE(parse_checks(""));
  CHECK(parse_checks("stall=60").stall == 60);
  CHECK(parse_checks("same,watchdog=off").no_watchdog);
  CHECK(parse_checks("memory").memory);
  CHECK(error_text([] {
          parse_checks("watchdog=off,stall=3");
        }).starts_with("[checks] MPIGRAD_CHECKS contains both a watchdog and"));
  for (const char* text : {"signature", "signatures=0", "signatures=-1", "signatures=1.5", "signatures=", "same=x", "trace=1",
                           "watchdog", "watchdog=0", "stall", "stall=0", "watchdog=of", "watchdog=-3", "watchdog=nan",
                           "watchdog=1e", ",signatures", "signatures,", "signatures,,trace"}) {
    CAPTURE(text);
    CHECK(error_text([&] { parse_checks(text); }).starts_with("[checks] MPIGRAD_CHECKS knows"));
  }
}
