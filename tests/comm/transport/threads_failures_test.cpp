// Failures on the `threads` transport: one rank's exception ends all ranks, the others do not wait for a rank that has ended, and
// calls that differ are the same error on all ranks.

#include <doctest/doctest.h>

#include <chrono>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "comm/transport/transport.h"
#include "tests/support/errors.h"

using namespace mpigrad;

namespace {

// Runs on `ranks` threads; returns each rank's error, "" for success. The body's errors do not reach run_threads.
std::vector<std::string> errors_of(int ranks, const std::function<void(Transport&)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  run_threads(ranks, [&](std::shared_ptr<Transport> t) {
    errors[static_cast<std::size_t>(t->rank())] = testing::error_text([&] { body(*t); });
    t->barrier();  // the group still works
  });
  return errors;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("threads: one rank's exception ends all and is the one rethrown") {
  struct Special : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  std::mutex mutex;
  std::vector<std::string> seen;
  const auto run = [&](const std::function<void(Transport&)>& others) {
    run_threads(4, [&](std::shared_ptr<Transport> t) {
      t->barrier();
      if (t->rank() == 2) throw Special("no such file");
      try {
        others(*t);
      } catch (const Error& error) {
        {
          std::lock_guard lock(mutex);
          seen.emplace_back(error.what());
        }
        CHECK_THROWS_AS(t->barrier(), Error);  // later calls too
        throw;
      }
    });
  };
  float x[4] = {};
  const std::vector<std::function<void(Transport&)>> waits = {
      [](Transport& t) { t.barrier(); },
      [&](Transport& t) { t.start_allreduce(&x[t.rank()], &x[t.rank()], 1, DType::float32, CombineOp::sum).wait(); },
      [&](Transport& t) {
        const Message m = {2, 0, &x[t.rank()], 1};
        t.exchange({}, {&m, 1}, DType::float32);
      },
      [](Transport& t) {
        const int others[] = {0, 1, 3};
        t.subgroup(others)->barrier();
        t.duplicate()->barrier();
      },
  };
  for (const auto& wait : waits) {
    seen.clear();
    CHECK_THROWS_WITH_AS(run(wait), "no such file", Special);
    CHECK(seen.size() == 3);
    for (const auto& text : seen) CHECK_MESSAGE(contains(text, "rank 2 of 4 failed: no such file"), text);
  }
  const auto throws_int = [](std::shared_ptr<Transport> t) {
    if (t->rank() == 1) throw 5;
    t->barrier();
  };
  CHECK_THROWS_AS(run_threads(3, throws_int), int);
}

TEST_CASE("threads: an exception with a receive under way does not wait for it") {
  CHECK_THROWS_WITH(run_threads(2,
                                [](std::shared_ptr<Transport> t) {
                                  float x = 0;
                                  const Message m = {1 - t->rank(), 0, &x, 1};
                                  auto pending = t->start_exchange({}, {&m, 1}, DType::float32);
                                  if (t->rank() == 0) throw Error("first");
                                }),
                    "first");
}

TEST_CASE("threads: an exception with a reduction under way takes its buffers out of it") {
  for (int repeat = 0; repeat < 20; ++repeat)
    CHECK_THROWS_WITH(run_threads(3,
                                  [](std::shared_ptr<Transport> t) {
                                    std::vector<float> x(200000, 1.0f);
                                    const auto n = static_cast<std::int64_t>(x.size());
                                    auto a = t->start_allreduce(x.data(), x.data(), n, DType::float32, CombineOp::sum);
                                    if (t->rank() == 0) throw Error("first");
                                    a.wait();
                                    t->barrier();
                                  }),
                      "first");
}

TEST_CASE("threads: a reduction goes on without the rank that caught an exception and left it") {
  for (int repeat = 0; repeat < 20; ++repeat)
    run_threads(3, [](std::shared_ptr<Transport> t) {
      const auto error = testing::error_text([&] {
        std::vector<float> x(200000, 1.0f);
        const auto n = static_cast<std::int64_t>(x.size());
        auto a = t->start_allreduce(x.data(), x.data(), n, DType::float32, CombineOp::sum);
        if (t->rank() == 0) throw Error("first");
        a.wait();
        require(x.front() == 3 && x.back() == 3, "[test] wrong sum {}", x.front());
      });
      require(error == (t->rank() == 0 ? "first" : ""), "[test] got '{}'", error);
      t->barrier();
    });
}

TEST_CASE("threads: waiting for a rank that has ended is an error") {
  CHECK_THROWS_WITH(run_threads(3,
                                [](std::shared_ptr<Transport> t) {
                                  if (t->rank() != 1) t->barrier();
                                }),
                    "[barrier] rank 1 has ended without taking part");
  const auto receive = [](std::shared_ptr<Transport> t) {
    float x = 0;
    const Message m = {0, 4, &x, 1};
    if (t->rank() == 1) t->exchange({}, {&m, 1}, DType::float32);
  };
  CHECK_THROWS_WITH(run_threads(2, receive),
                    "[exchange] rank 0 has ended without sending the message with tag 4 that rank 1 waits for");
  // A message sent before the end arrives.
  run_threads(2, [](std::shared_ptr<Transport> t) {
    float x = static_cast<float>(t->rank());
    const Message m = {1 - t->rank(), 0, &x, 1};
    if (t->rank() == 0) t->exchange({&m, 1}, {}, DType::float32);
    if (t->rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      t->exchange({}, {&m, 1}, DType::float32);
      require(x == 0, "[test] not received");
    }
  });
}

TEST_CASE("threads: calls that differ are the same error on all ranks, and the group goes on") {
  std::vector<double> x(64);  // shared, but nothing is written
  const auto same = [](const std::vector<std::string>& errors, const std::string& text) {
    for (const auto& error : errors) CHECK(error == text);
  };
  const auto allreduce = [&](Transport& t, std::int64_t count, DType type, CombineOp op) {
    t.allreduce(x.data(), x.data(), count, type, op);
  };
  same(errors_of(3, [&](Transport& t) { allreduce(t, t.rank() == 1 ? 8 : 4, DType::float32, CombineOp::sum); }),
       "[allreduce] the ranks' calls differ: rank 1 allreduce(8 float32, sum); ranks 0, 2 allreduce(4 float32, sum)");
  same(errors_of(2, [&](Transport& t) { allreduce(t, 4, t.rank() ? DType::float32 : DType::float64, CombineOp::sum); }),
       "[allreduce] the ranks' calls differ: rank 0 allreduce(4 float64, sum); rank 1 allreduce(4 float32, sum)");
  same(errors_of(2, [&](Transport& t) { allreduce(t, 4, DType::float32, t.rank() ? CombineOp::max : CombineOp::sum); }),
       "[allreduce] the ranks' calls differ: rank 0 allreduce(4 float32, sum); rank 1 allreduce(4 float32, max)");
  same(errors_of(2, [&](Transport& t) { t.bcast(x.data(), 4, DType::float32, t.rank()); }),
       "[bcast] the ranks' calls differ: rank 0 bcast(4 float32, root 0); rank 1 bcast(4 float32, root 1)");
  same(errors_of(2, [&](Transport& t) { t.rank() ? t.barrier() : t.bcast(x.data(), 4, DType::float32, 0); }),
       "[bcast] the ranks' calls differ: rank 0 bcast(4 float32, root 0); rank 1 barrier()");
  same(errors_of(2,
                 [&](Transport& t) {
                   const std::int64_t counts[2] = {1, t.rank() + 1};
                   t.allgather(x.data(), x.data() + 8, counts, DType::float32);
                 }),
       "[allgather] the ranks' calls differ: rank 0 allgather([1, 1] float32); rank 1 allgather([1, 2] float32)");
  same(errors_of(2,
                 [&](Transport& t) {
                   const std::int64_t send[2] = {1, 1}, receive[2] = {1, t.rank() + 1};
                   t.alltoall(x.data(), send, x.data() + 8, receive, DType::float32);
                 }),
       "[alltoall] rank 1 sends 1 float32 to rank 1, which expects 2");
  same(errors_of(2,
                 [&](Transport& t) {
                   double y[2] = {};
                   t.start_allreduce(y, y, t.rank() + 1, DType::float64, CombineOp::sum).wait();
                 }),
       "[iallreduce] the ranks' calls differ: rank 0 iallreduce(1 float64, sum); "
       "rank 1 iallreduce(2 float64, sum)");
  const auto sent = errors_of(2, [&](Transport& t) {
    double y[2] = {};
    const Message m = {1 - t.rank(), 3, y, t.rank() + 1};
    t.rank() ? t.exchange({}, {&m, 1}, DType::float64) : t.exchange({&m, 1}, {}, DType::float64);
  });
  CHECK(sent[1] == "[exchange] rank 0 sent 1 float64 with tag 3 to rank 1, which expects 2 float64");
}
