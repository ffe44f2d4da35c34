#include "examples/studies/plan/planner/formulas/collective_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "framework/base/error.h"

namespace mpigrad::planner {
namespace cost {
namespace {

void check(int p, double n) {
  require(p >= 1, "[collective cost] there is at least one rank, got {}", p);
  require(std::isfinite(n) && n >= 0, "[collective cost] bytes are a number of 0 or more, got {}", n);
}

bool is_power_of_two(int p) { return std::has_single_bit(static_cast<unsigned>(p)); }
int floor_lg(int p) { return std::bit_width(static_cast<unsigned>(p)) - 1; }
int ceil_lg(int p) { return floor_lg(p) + (is_power_of_two(p) ? 0 : 1); }
// (p - 1)/p: the fraction of the whole vector that a rank sends.
double share(int p) { return (p - 1.0) / p; }

// The form of all formulas: `messages` messages, `sent` times n through the link, `added` times n added. Nothing on one rank.
double seconds(int p, double n, const Link& link, double messages, double sent, double added = 0) {
  check(p, n);
  if (p == 1) return 0;
  return messages * link.latency + sent * n * link.seconds_per_byte + added * n * link.gamma;
}

}  // namespace

double point_to_point(double n, const Link& link) {
  check(1, n);
  return link.latency + n * link.seconds_per_byte;
}

double broadcast_binomial(int p, double n, const Link& link) { return seconds(p, n, link, ceil_lg(p), ceil_lg(p)); }
double broadcast_scatter_ring(int p, double n, const Link& link) {
  return seconds(p, n, link, ceil_lg(p) + p - 1.0, 2 * share(p));
}
double broadcast_scatter_doubling(int p, double n, const Link& link) { return seconds(p, n, link, 2 * ceil_lg(p), 2 * share(p)); }
double reduce_binomial(int p, double n, const Link& link) { return seconds(p, n, link, ceil_lg(p), ceil_lg(p), ceil_lg(p)); }
double gather_binomial(int p, double n, const Link& link) { return seconds(p, n, link, ceil_lg(p), share(p)); }
double scatter_binomial(int p, double n, const Link& link) { return gather_binomial(p, n, link); }

double allgather_bruck(int p, double n, const Link& link) { return gather_binomial(p, n, link); }
double allgather_ring(int p, double n, const Link& link) { return seconds(p, n, link, p - 1.0, share(p)); }

double reduce_scatter_halving(int p, double n, const Link& link) {
  if (is_power_of_two(p)) return seconds(p, n, link, floor_lg(p), share(p), share(p));
  return seconds(p, n, link, floor_lg(p) + 2, 1 + share(p), 1 + share(p));
}
double reduce_scatter_pairwise(int p, double n, const Link& link) { return seconds(p, n, link, p - 1.0, share(p), share(p)); }

double allreduce_doubling(int p, double n, const Link& link) { return reduce_binomial(p, n, link); }
double allreduce_rabenseifner(int p, double n, const Link& link) {
  if (is_power_of_two(p)) return seconds(p, n, link, 2 * floor_lg(p), 2 * share(p), share(p));
  return seconds(p, n, link, 2 * floor_lg(p) + 2, 2 * share(p) + 2, 1 + share(p));
}
double allreduce_ring(int p, double n, const Link& link) { return seconds(p, n, link, 2.0 * (p - 1), 2 * share(p), share(p)); }
double allreduce_double_tree(int p, double n, const Link& link) { return seconds(p, n, link, 2 * ceil_lg(p), 2, 1); }

double alltoall_bruck(int p, double n, const Link& link) { return seconds(p, n, link, ceil_lg(p), 0.5 * ceil_lg(p)); }
double alltoall_pairwise(int p, double n, const Link& link) { return seconds(p, n, link, p - 1.0, 1); }

double halo(double m, const Link& link, bool both_at_once) { return (both_at_once ? 1 : 2) * point_to_point(m, link); }

}  // namespace cost

std::vector<Algorithm> algorithms(CollectiveKind collective, int p, double n, const Link& link) {
  using namespace cost;
  switch (collective) {
    case CollectiveKind::barrier: return algorithms(CollectiveKind::bcast, p, 0, link);
    case CollectiveKind::bcast:
      return {{"binomial", broadcast_binomial(p, n, link)},
              {"scatter_ring", broadcast_scatter_ring(p, n, link)},
              {"scatter_doubling", broadcast_scatter_doubling(p, n, link)}};
    case CollectiveKind::reduce: return {{"binomial", reduce_binomial(p, n, link)}};
    case CollectiveKind::gather: return {{"binomial", gather_binomial(p, n, link)}};
    case CollectiveKind::scatter: return {{"binomial", scatter_binomial(p, n, link)}};
    case CollectiveKind::allgather: return {{"bruck", allgather_bruck(p, n, link)}, {"ring", allgather_ring(p, n, link)}};
    case CollectiveKind::reduce_scatter:
      return {{"halving", reduce_scatter_halving(p, n, link)}, {"pairwise", reduce_scatter_pairwise(p, n, link)}};
    case CollectiveKind::allreduce:
      return {{"doubling", allreduce_doubling(p, n, link)},
              {"rabenseifner", allreduce_rabenseifner(p, n, link)},
              {"ring", allreduce_ring(p, n, link)},
              {"double_tree", allreduce_double_tree(p, n, link)}};
    case CollectiveKind::alltoall: return {{"bruck", alltoall_bruck(p, n, link)}, {"pairwise", alltoall_pairwise(p, n, link)}};
  }
  fail("[collective cost] unknown collective");
}

Algorithm best(CollectiveKind collective, int p, double n, const Link& link) {
  const auto all = algorithms(collective, p, n, link);
  return *std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
}

}  // namespace mpigrad::planner
