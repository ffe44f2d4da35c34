// The `threads` and `dry` transports.

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>

#include "tests/comm/transport/transport_cases.h"

using namespace mpigrad;
using namespace mpigrad::transport_cases;

namespace {

constexpr int rank_counts[] = {1, 2, 3, 4, 7};

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
  CHECK((*log)[0].kind == CollectiveKind::allreduce);
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
  CHECK((*log)[0].what == DryRecord::What::send);
  CHECK((*log)[0].peer == 100);
  CHECK((*log)[0].tag == 11);
  CHECK((*log)[0].bytes == 12);
  CHECK((*log)[1].what == DryRecord::What::receive);
  CHECK((*log)[1].peer == 9);
  CHECK((*log)[1].bytes == 8);

  // Another rank that creates the same subgroup logs the same members; another subgroup logs other members.
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
