// Costs of collectives against numbers worked out by hand, with alpha = 1 s, beta = 0.01 s/byte and gamma = 0.0001 s/byte, whose
// parts of a sum can be told apart.

#include "examples/studies/plan/planner/formulas/collective_cost.h"

#include <doctest/doctest.h>

#include "framework/base/error.h"

using namespace mpigrad;
using namespace mpigrad::planner;

namespace {

constexpr Link wire{.latency = 1, .seconds_per_byte = 0.01, .gamma = 0.0001};
constexpr double n = 1200;  // n beta = 12, n gamma = 0.12

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-13); }

}  // namespace

TEST_CASE("collective costs on four ranks: lg p = 2, (p - 1)/p = 3/4") {
  CHECK(cost::point_to_point(n, wire) == exactly(13));
  CHECK(cost::broadcast_binomial(4, n, wire) == exactly(26));          // 2 (1 + 12)
  CHECK(cost::broadcast_scatter_ring(4, n, wire) == exactly(23));      // 5 + 2 * 9
  CHECK(cost::broadcast_scatter_doubling(4, n, wire) == exactly(22));  // 4 + 2 * 9
  CHECK(cost::reduce_binomial(4, n, wire) == exactly(26.24));          // 2 (1 + 12 + 0.12)
  CHECK(cost::gather_binomial(4, n, wire) == exactly(11));             // 2 + 9
  CHECK(cost::scatter_binomial(4, n, wire) == exactly(11));
  CHECK(cost::allgather_bruck(4, n, wire) == exactly(11));
  CHECK(cost::allgather_ring(4, n, wire) == exactly(12));              // 3 + 9
  CHECK(cost::reduce_scatter_halving(4, n, wire) == exactly(11.09));   // 2 + 9 + 0.09
  CHECK(cost::reduce_scatter_pairwise(4, n, wire) == exactly(12.09));  // 3 + 9 + 0.09
  CHECK(cost::allreduce_doubling(4, n, wire) == exactly(26.24));
  CHECK(cost::allreduce_rabenseifner(4, n, wire) == exactly(22.09));  // 4 + 18 + 0.09
  CHECK(cost::allreduce_ring(4, n, wire) == exactly(24.09));          // 6 + 18 + 0.09
  CHECK(cost::allreduce_double_tree(4, n, wire) == exactly(28.12));   // 4 + 24 + 0.12
  CHECK(cost::alltoall_bruck(4, n, wire) == exactly(14));             // 2 + 6 * 2
  CHECK(cost::alltoall_pairwise(4, n, wire) == exactly(15));          // 3 + 12
}

TEST_CASE("collective costs on six ranks, no power of two: lg p is 3, its floor 2, (p - 1)/p = 5/6") {
  CHECK(cost::broadcast_binomial(6, n, wire) == exactly(39));         // 3 (1 + 12)
  CHECK(cost::broadcast_scatter_ring(6, n, wire) == exactly(28));     // 3 + 5 + 2 * 10
  CHECK(cost::gather_binomial(6, n, wire) == exactly(13));            // 3 + 10
  CHECK(cost::allgather_ring(6, n, wire) == exactly(15));             // 5 + 10
  CHECK(cost::reduce_scatter_halving(6, n, wire) == exactly(26.22));  // (2 + 2) + (1 + 5/6)(12 + 0.12)
  CHECK(cost::reduce_scatter_pairwise(6, n, wire) == exactly(15.1));  // 5 + 10 + 0.1
  CHECK(cost::allreduce_doubling(6, n, wire) == exactly(39.36));      // 3 (1 + 12 + 0.12)
  CHECK(cost::allreduce_rabenseifner(6, n, wire) == exactly(50.22));  // (4 + 2) + (5/3 + 2) 12 + (1 + 5/6) 0.12
  CHECK(cost::allreduce_ring(6, n, wire) == exactly(30.1));           // 10 + 20 + 0.1
  CHECK(cost::allreduce_double_tree(6, n, wire) == exactly(30.12));   // 6 + 24 + 0.12
  CHECK(cost::alltoall_bruck(6, n, wire) == exactly(21));             // 3 + 6 * 3
  CHECK(cost::alltoall_pairwise(6, n, wire) == exactly(17));          // 5 + 12
}

TEST_CASE("collective costs: a halo goes to two neighbours, one after the other or at once") {
  CHECK(cost::halo(100, wire) == exactly(4));  // 2 (1 + 1)
  CHECK(cost::halo(100, wire, true) == exactly(2));
}

TEST_CASE("collective costs: alone, a rank says nothing; nothing to say still takes a message") {
  for (const auto collective :
       {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::gather, CollectiveKind::scatter, CollectiveKind::allgather,
        CollectiveKind::reduce_scatter, CollectiveKind::allreduce, CollectiveKind::alltoall}) {
    for (const auto& each : algorithms(collective, 1, n, wire)) CHECK(each.seconds == 0);
    for (const auto& each : algorithms(collective, 2, 0, wire)) CHECK(each.seconds >= 1);
  }
}

TEST_CASE("collective costs: the best algorithm is the cheapest: short messages by few steps, long ones by rings and halves") {
  CHECK(best(CollectiveKind::allreduce, 4, 8, wire).name == "doubling");
  CHECK(best(CollectiveKind::allreduce, 4, n, wire).name == "rabenseifner");
  CHECK(best(CollectiveKind::allreduce, 6, n, wire).name == "ring");
  CHECK(best(CollectiveKind::allreduce, 6, n, wire).seconds == exactly(30.1));
  // Few bytes more than latency can be had for on many ranks: 14 + 2 * 1.2 + ... against 7 * 2.2.
  CHECK(best(CollectiveKind::allreduce, 96, 300, wire).name == "double_tree");
  CHECK(best(CollectiveKind::bcast, 4, 8, wire).name == "binomial");
  CHECK(best(CollectiveKind::bcast, 4, n, wire).name == "scatter_doubling");
  CHECK(best(CollectiveKind::reduce_scatter, 6, n, wire).name == "pairwise");
  CHECK(best(CollectiveKind::alltoall, 16, 1, wire).name == "bruck");
  CHECK(best(CollectiveKind::alltoall, 16, 1e6, wire).name == "pairwise");
  // Of two ranks' algorithms that cost the same, the first.
  CHECK(best(CollectiveKind::allgather, 2, n, wire).name == "bruck");
  for (const int p : {2, 3, 7, 16, 100})
    for (const double bytes : {0.0, 100.0, 1e4, 1e7})
      for (const auto& each : algorithms(CollectiveKind::allreduce, p, bytes, wire))
        CHECK(best(CollectiveKind::allreduce, p, bytes, wire).seconds <= each.seconds);
}

TEST_CASE("collective costs: numbers that cannot be are refused") {
  CHECK_THROWS_AS(cost::allreduce_ring(0, 1, wire), Error);
  CHECK_THROWS_AS(cost::allreduce_rabenseifner(-4, 1, wire), Error);
  CHECK_THROWS_AS(cost::broadcast_binomial(4, -1, wire), Error);
  CHECK_THROWS_AS(cost::point_to_point(-1, wire), Error);
}
