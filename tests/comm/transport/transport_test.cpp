// The `threads` and `dry` transports, and how a program is launched.

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "comm/launch.h"
#include "framework/cuda/cuda.h"
#include "tests/comm/transport/transport_cases.h"

using namespace mpigrad;
using namespace mpigrad::transport_cases;

namespace {

constexpr int rank_counts[] = {1, 2, 3, 4, 7};

// Runs on `ranks` threads; each rank's error, "" where it ended well. The body's errors do not reach run_threads.
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

TEST_CASE("threads: reductions of every type and operation") {
  for (int ranks : rank_counts)
    run_threads(ranks, [](std::shared_ptr<Transport> t) {
      for (auto type : all_types)
        for (auto op : all_reductions)
          for (std::int64_t count : {0, 1, 7, 2100})
            if (allowed(type, op)) check_reductions(*t, type, op, count);
    });
}

TEST_CASE("threads: reductions of 16-bit types round at each step") {
  for (int ranks : {1, 2, 3, 4, 5}) run_threads(ranks, [](std::shared_ptr<Transport> t) { check_half_rounding(*t); });
}

TEST_CASE("threads: broadcast, gather, scatter, allgather, alltoall with uneven and zero counts") {
  for (int ranks : rank_counts)
    run_threads(ranks, [](std::shared_ptr<Transport> t) {
      for (auto type : all_types) {
        for (int root = 0; root < t->size(); ++root) check_movement(*t, type, root);
        check_alltoall(*t, type);
      }
    });
}

TEST_CASE("threads: exchange, also with oneself and several messages to one peer") {
  for (int ranks : rank_counts)
    run_threads(ranks, [](std::shared_ptr<Transport> t) {
      for (bool blocking : {true, false})
        for (auto type : {DType::float32, DType::float64, DType::uint8, DType::uint16}) check_exchange(*t, type, blocking);
    });
}

TEST_CASE("threads: communicators, overlap, refusals") {
  for (int ranks : rank_counts)
    run_threads(ranks, [](std::shared_ptr<Transport> t) {
      check_communicators(*t);
      check_overlap(*t);
      check_refusals(*t);
      require(t->node_size() == t->size() && t->node_rank() == t->rank() && t->name() == "threads", "[test] one node");
      // Collectives and messages inside a subgroup.
      if (auto part = t->split(t->rank() % 2, t->rank())) {
        check_reductions(*part, DType::float32, CombineOp::sum, 10);
        check_movement(*part, DType::float64, 0);
        check_exchange(*part, DType::int32, true);
      }
    });
}

TEST_CASE("threads: sums are the same on every rank and in every run, in rank order") {
  std::vector<float> expected;
  for (int i = 0; i < 4000; ++i) {
    float sum = 1.0f / static_cast<float>(i + 1);
    for (int r = 1; r < 7; ++r) sum += 1.0f / static_cast<float>(i + 1 + 1000 * r);
    expected.push_back(sum);
  }
  run_threads(7, [&](std::shared_ptr<Transport> t) {
    std::vector<float> x;
    for (int i = 0; i < 4000; ++i) x.push_back(1.0f / static_cast<float>(i + 1 + 1000 * t->rank()));
    auto pending = x;
    auto operation = t->start_allreduce(pending.data(), pending.data(), 4000, DType::float32, CombineOp::sum);
    t->allreduce(x.data(), x.data(), 4000, DType::float32, CombineOp::sum);
    operation.wait();
    require(x == expected && pending == expected, "[test] not the sum in rank order");
  });
}

TEST_CASE("threads: a NaN survives max and min") {
  run_threads(3, [](std::shared_ptr<Transport> t) {
    for (int where = 0; where < 3; ++where)
      for (auto op : {CombineOp::max, CombineOp::min}) {
        double x = t->rank() == where ? std::nan("") : t->rank();
        t->allreduce(&x, &x, 1, DType::float64, op);
        require(std::isnan(x), "[test] NaN of rank {} got lost", where);
      }
  });
}

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

TEST_CASE("threads: many ranks, many calls, nested runs") {
  std::atomic<int> total = 0;
  run_threads(18, [&](std::shared_ptr<Transport> t) {
    for (int i = 0; i < 100; ++i) {
      std::int32_t x = t->rank() + i;
      t->allreduce(&x, &x, 1, DType::int32, CombineOp::sum);
      require(x == 153 + 18 * i, "[test] call {} gave {}", i, x);
    }
    if (t->rank() == 3)
      run_threads(2, [&](std::shared_ptr<Transport> inner) {
        inner->barrier();
        ++total;
      });
  });
  CHECK(total == 2);
  CHECK_THROWS_AS(run_threads(0, [](std::shared_ptr<Transport>) {}), Error);
}

TEST_CASE("dry: logs calls, moves nothing, knows subgroups") {
  auto log = std::make_shared<std::vector<DryRecord>>();
  auto world = dry_world(5, 2048, log);
  CHECK(world->name() == "dry");
  CHECK(world->rank() == 5);
  CHECK(world->size() == 2048);
  world->allreduce(nullptr, nullptr, std::int64_t{1} << 33, DType::float32, CombineOp::sum);
  world->bcast(nullptr, 10, DType::float64, 5);
  world->bcast(nullptr, 10, DType::float64, 7);
  REQUIRE(log->size() == 3);
  CHECK((*log)[0].call == "allreduce");
  CHECK((*log)[0].bytes == std::int64_t{1} << 35);
  CHECK((*log)[0].peer == -1);
  CHECK((*log)[1].bytes == 80);
  CHECK((*log)[2].bytes == 0);
  CHECK((*log)[2].peer == 7);

  const int members[] = {9, 5, 100, 7};
  auto part = world->subgroup(members);
  CHECK(part->rank() == 1);
  CHECK(part->size() == 4);
  log->clear();
  const Message send = {2, 11, nullptr, 6}, receive = {0, 12, nullptr, 4};
  part->start_exchange({&send, 1}, {&receive, 1}, DType::int16).wait();
  REQUIRE(log->size() == 2);
  CHECK((*log)[0].call == "send");
  CHECK((*log)[0].peer == 100);
  CHECK((*log)[0].tag == 11);
  CHECK((*log)[0].bytes == 12);
  CHECK((*log)[1].call == "receive");
  CHECK((*log)[1].peer == 9);
  CHECK((*log)[1].bytes == 8);

  // Another rank that makes the same subgroup logs the same members; another subgroup is another one.
  auto other_log = std::make_shared<std::vector<DryRecord>>();
  dry_world(100, 2048, other_log)->subgroup(members)->barrier();
  CHECK((*other_log)[0].members == (*log)[0].members);
  const int pair[] = {1, 3};
  part->subgroup(pair)->barrier();
  CHECK(log->back().members != (*log)[0].members);
  part->duplicate()->barrier();
  CHECK(log->back().members == (*log)[0].members);

  const std::int64_t counts[] = {1, 2, 3, 4};
  log->clear();
  part->gather(nullptr, nullptr, counts, DType::float32, 3);
  part->scatter(nullptr, nullptr, counts, DType::float32, 1);
  part->allgather(nullptr, nullptr, counts, DType::float32);
  part->reduce_scatter(nullptr, nullptr, counts, DType::float32, CombineOp::sum);
  part->alltoall(nullptr, counts, nullptr, counts, DType::float32);
  const std::int64_t expected[] = {8, 40, 8, 40, 40};
  for (std::size_t i = 0; i < 5; ++i) CHECK((*log)[i].bytes == expected[i]);
  CHECK((*log)[0].peer == 7);

  CHECK_THROWS_AS(world->split(0, 0), Error);
  CHECK_THROWS_AS(dry_world(3, 3, log), Error);
  CHECK_THROWS_AS(world->subgroup(pair), Error);
  dry_world(0, 1, nullptr)->barrier();
}

TEST_CASE("launch: options are taken out of the command line") {
  const auto take = [](std::vector<std::string> words) {
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int argc = static_cast<int>(words.size());
    const auto options = take_launch_options(argc, argv.data());
    std::string rest;
    for (int i = 0; i < argc; ++i) rest += std::string(argv[static_cast<std::size_t>(i)]) + " ";
    return fmt::format("{} {}{}{} | {}", options.transport, options.ranks, options.device.empty() ? "" : " ", options.device,
                       rest);
  };
  CHECK(take({"prog", "--a", "--transport", "threads", "b", "--ranks=4"}) == "threads 4 | prog --a b ");
  CHECK(take({"prog", "--transport=mpi", "--ranksx", "1"}) == "mpi 0 | prog --ranksx 1 ");
  CHECK(take({"prog", "--", "--ranks", "4"}) == " 0 | prog -- --ranks 4 ");
  CHECK_THROWS_WITH(take({"prog", "--ranks"}), "[launch] --ranks needs a value");
  CHECK_THROWS_WITH(take({"prog", "--ranks", "0"}), "[launch] --ranks is a number of ranks, 1 or more, got '0'");
  CHECK_THROWS_WITH(take({"prog", "--transport=carrier-pigeon"}), "[launch] --transport is threads or mpi, got 'carrier-pigeon'");
  CHECK(take({"prog", "--device", "cuda", "--ranks=2"}) == " 2 cuda | prog ");
  CHECK(take({"prog", "--device=cpu", "--devices", "x"}) == " 0 cpu | prog --devices x ");
  CHECK_THROWS_WITH(take({"prog", "--device"}), "[launch] --device needs a value");
  CHECK_THROWS_WITH(take({"prog", "--device", "gpu"}), "[launch] --device is cpu or cuda, got 'gpu'");
  setenv("MPIGRAD_DEVICE", "cuda", 1);
  CHECK(take({"prog"}) == " 0 cuda | prog ");
  CHECK(take({"prog", "--device", "cpu"}) == " 0 cpu | prog ");
  setenv("MPIGRAD_DEVICE", "tpu", 1);
  CHECK_THROWS_WITH(take({"prog"}), "[launch] MPIGRAD_DEVICE is cpu or cuda, got 'tpu'");
  unsetenv("MPIGRAD_DEVICE");
  setenv("MPIGRAD_TRANSPORT", "threads", 1);
  setenv("MPIGRAD_RANKS", "3", 1);
  CHECK(take({"prog"}) == "threads 3 | prog ");
  CHECK(take({"prog", "--ranks", "5"}) == "threads 5 | prog ");
  unsetenv("MPIGRAD_TRANSPORT");
  unsetenv("MPIGRAD_RANKS");
  CHECK(resolve_launch_options({.transport = "", .ranks = 4}).transport == "threads");
  CHECK(resolve_launch_options({.transport = "threads", .ranks = 0}).ranks == 1);
}

TEST_CASE("launch: a GPU is refused in one line where there is none, and the rest works") {
  CHECK(resolve_launch_options({.transport = "threads", .ranks = 2, .device = ""}).device == "cpu");
  const LaunchOptions options{.transport = "threads", .ranks = 2, .device = "cuda"};
  if (cuda::available()) {
    CHECK(resolve_launch_options(options).device == "cuda");
  } else {
    const auto text = testing::error_text([&] { resolve_launch_options(options); });
    CHECK(text == "[launch] --device cuda: " + cuda::unavailable());
    CHECK(text.find('\n') == std::string::npos);
    std::string words[] = {"prog", "--device=cuda", "--transport=threads", "--ranks=3"};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
    int argc = 4;
    bool ran = false;
    CHECK(launch(argc, argv, [&](std::shared_ptr<Transport>) {
            ran = true;
            return 0;
          }) == 2);  // prints the line once
    CHECK_FALSE(ran);
  }
  run_threads(5, [](std::shared_ptr<Transport> t) {
    require(gpu_of_rank(*t, 2) == t->rank() % 2 && gpu_of_rank(*t, 8) == t->rank(), "[test] GPU of rank {}", t->rank());
    require(testing::error_text([&] { gpu_of_rank(*t, 0); }) == fmt::format("[launch] there is no GPU for rank {}", t->rank()),
            "[test] no GPU");
  });
}

TEST_CASE("launch: exit codes, and the threads of each rank") {
  const auto run = [](const char* ranks, const std::function<int(std::shared_ptr<Transport>)>& body) {
    std::string words[] = {"prog", "--transport", "threads", "--ranks", ranks};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), words[4].data(), nullptr};
    int argc = 5;
    return launch(argc, argv, body);
  };
  CHECK(run("3", [](std::shared_ptr<Transport>) { return 0; }) == 0);
  CHECK(run("3", [](std::shared_ptr<Transport> t) { return t->rank() == 2 ? 7 : 0; }) == 7);
  CHECK(run("3", [](std::shared_ptr<Transport> t) {
          if (t->rank() == 1) fail("[test] this line is expected once on standard error");
          t->barrier();
          return 0;
        }) == 1);
  CHECK(run("none", [](std::shared_ptr<Transport>) { return 0; }) == 2);
  unsetenv("OMP_NUM_THREADS");
  const int cores = threads_of_rank(*dry_world(0, 100, nullptr));
  CHECK(cores >= 1);
  for (int ranks : {1, 2, 3})
    run_threads(ranks, [&](std::shared_ptr<Transport> t) {
      require(set_threads_of_rank(*t) == std::max(1, cores / t->size()), "[test] threads of {} ranks", t->size());
    });
  setenv("MPIGRAD_THREADS", "5", 1);
  CHECK(threads_of_rank(*dry_world(0, 1, nullptr)) == 5);
  unsetenv("MPIGRAD_THREADS");
}
