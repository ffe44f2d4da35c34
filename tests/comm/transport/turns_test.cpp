// Ranks that take turns on one thread: the cases of all transports, the results of the threads transport to the bit, and ranks
// that would wait for ever.

#include <doctest/doctest.h>

#include "comm/collectives/reductions.h"
#include "comm/collectives/scan.h"
#include "comm/communicator.h"
#include "comm/distributed/invariant.h"
#include "comm/messages/point_to_point.h"
#include "examples/site/browser/turns.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "tests/comm/transport/transport_cases.h"
#include "tests/support/errors.h"

using namespace mpigrad;
using namespace mpigrad::transport_cases;
using mpigrad::testing::error_text;

TEST_CASE("turns: the cases of all transports") {
  for (const int ranks : {1, 2, 3, 5}) {
    const auto in_turns = [&](const std::function<void(Transport&)>& body) {
      run_in_turns(ranks, [&](std::shared_ptr<Transport> t) { body(*t); });
    };
    for (auto op : all_reductions)
      for (std::int64_t count : {0, 7, 2100})
        if (allowed(DType::float64, op)) in_turns([&](Transport& t) { check_reductions(t, DType::float64, op, count); });
    for (int root = 0; root < ranks; ++root) in_turns([&](Transport& t) { check_movement(t, DType::int32, root); });
    in_turns([](Transport& t) { check_alltoall(t, DType::float32); });
    in_turns([](Transport& t) { check_exchange(t, DType::float64, true); });
    in_turns([](Transport& t) { check_exchange(t, DType::float64, false); });
    in_turns([](Transport& t) { check_started_movement(t, DType::float64); });
    in_turns([](Transport& t) { check_parts(t); });
    in_turns([](Transport& t) { check_communicators(t); });
  }
}

TEST_CASE("turns: a gradient through messages and collectives has the bits that threads give") {
  for (const int ranks : {1, 2, 4}) {
    std::vector<std::vector<double>> found[2];
    for (const bool turns : {false, true}) {
      found[turns].resize(static_cast<std::size_t>(ranks));
      const auto body = [&](std::shared_ptr<Transport> transport) {
        const Communicator comm(transport);
        const Tensor x = random_normal({3}, {.key = 1, .stream = static_cast<std::uint64_t>(comm.rank())}, 0, 1, DType::float64);
        const Tensor w = random_normal({3}, {.key = 2}, 0, 1, DType::float64);
        Tape tape;
        Request in = irecv(x.type(), comm, (comm.rank() + ranks - 1) % ranks, 3),
                out = isend(square(x), comm, (comm.rank() + 1) % ranks, 3);
        const Tensor inner = tanh(x);
        const Tensor y = wait(in) * scan(inner, comm) + allreduce(x * replicate(w, comm), comm, ReduceOp::max);
        wait(out);
        const Tensor g = tape.gradient(sum(y), {x}, Record::yes)[0];
        found[turns][static_cast<std::size_t>(comm.rank())] = tape.gradient(dot(g, w), {x})[0].to_vector();
      };
      if (turns) run_in_turns(ranks, body);
      else run_threads(ranks, body);
    }
    CHECK(found[0] == found[1]);
  }
}

TEST_CASE("turns: who waits for whom is told where no rank can go on; errors come out") {
  const auto lonely = error_text([] {
    run_in_turns(3, [](std::shared_ptr<Transport> t) {
      if (t->rank() == 1) return;
      double x = 1;
      t->allreduce(&x, &x, 1, DType::float64, CombineOp::sum);
    });
  });
  CHECK(lonely ==
        "[run_in_turns] no rank can go on: rank 0: allreduce(1 float64, sum) waits for rank 1; rank 2: allreduce(1 float64, sum) "
        "waits for rank 1");
  const auto circle = error_text([] {
    run_in_turns(2, [](std::shared_ptr<Transport> t) {
      double x = 1;
      const Message message{1 - t->rank(), 5, &x, 1};
      t->exchange({}, std::span(&message, 1), DType::float64);
    });
  });
  CHECK(circle.find("rank 0: receive of 1 float64 with tag 5 waits for rank 1") != std::string::npos);
  const auto differ = error_text([] {
    run_in_turns(2, [](std::shared_ptr<Transport> t) {
      double x[2] = {1, 2};
      t->allreduce(x, x, 1 + t->rank(), DType::float64, CombineOp::sum);
    });
  });
  CHECK(differ.find("allreduce") != std::string::npos);
  CHECK_THROWS_WITH(run_in_turns(2, [](std::shared_ptr<Transport> t) { require(t->rank() == 0, "[test] rank {}", t->rank()); }),
                    "[test] rank 1");
  std::vector<int> turns(2);
  const auto changed = error_text([&] {
    run_in_turns(2, [&](std::shared_ptr<Transport> t) {
      std::vector<double> x(5, 1.0);
      t->allreduce(x.data(), x.data(), 1 + turns[static_cast<std::size_t>(t->rank())]++, DType::float64, CombineOp::sum);
    });
  });
  CHECK(changed.find("must do the same in every turn") != std::string::npos);
  CHECK_THROWS_AS(run_in_turns(0, [](std::shared_ptr<Transport>) {}), Error);
}

TEST_CASE("turns: whichever comes first, and questions that are answered no") {
  std::vector<int> order(3);
  run_in_turns(3, [&](std::shared_ptr<Transport> transport) {
    const Communicator comm(transport);
    const TensorType type{Shape{1}, DType::float64};
    if (comm.rank() == 0) {
      // Rank 1 sends only after it has received rank 2's message.
      std::vector<Request> requests;
      requests.push_back(irecv(type, comm, 1)), requests.push_back(irecv(type, comm, 2));
      const auto first = waitany(requests);
      order[0] = first.index;
      send(ones({1}, DType::float64), comm, 1);
      order[1] = waitany(requests).index;
    } else if (comm.rank() == 1) {
      recv(type, comm, 0);
      send(ones({1}, DType::float64), comm, 0);
    } else {
      send(ones({1}, DType::float64), comm, 0);
    }
  });
  CHECK(order[0] == 1);
  CHECK(order[1] == 0);
}
