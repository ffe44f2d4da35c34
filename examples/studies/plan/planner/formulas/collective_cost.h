#pragma once
// The costs of messages and collectives by the algorithms of MPI libraries, in Hockney's model: a message of m bytes takes alpha
// + m beta seconds, and adding m bytes to others m gamma. Formulas of Thakur, Rabenseifner and Gropp (2005); the double binary
// tree is that of Sanders, Speck and Traeff (2009).
//
// In all formulas: p ranks, at least 1; n bytes of the whole vector (all-gather and gather: the gathered vector; reduce-scatter
// and scatter: the vector that is split; all-to-all: the bytes that one rank sends); lg is the logarithm to base 2, rounded up if
// p is not a power of 2. Results are seconds; 0 on one rank. Errors: p below 1, n negative or not finite.

#include <string>
#include <vector>

#include "comm/transport/collective.h"

namespace mpigrad::planner {

struct Link {
  double latency = 0;           // alpha: seconds of every message
  double seconds_per_byte = 0;  // beta: the inverse of the bandwidth
  double gamma = 0;             // seconds per byte of a reduction's arithmetic
};

namespace cost {

// alpha + n beta
double point_to_point(double n, const Link& link);

// lg p (alpha + n beta)
double broadcast_binomial(int p, double n, const Link& link);
// (lg p + p - 1) alpha + 2 n (p - 1)/p beta: a scatter, then a ring
double broadcast_scatter_ring(int p, double n, const Link& link);
// 2 lg p alpha + 2 n (p - 1)/p beta: a scatter, then recursive doubling
double broadcast_scatter_doubling(int p, double n, const Link& link);
// lg p (alpha + n beta + n gamma)
double reduce_binomial(int p, double n, const Link& link);
// lg p alpha + n (p - 1)/p beta
double gather_binomial(int p, double n, const Link& link);
double scatter_binomial(int p, double n, const Link& link);

// lg p alpha + n (p - 1)/p beta; recursive doubling costs the same if p is a power of 2
double allgather_bruck(int p, double n, const Link& link);
// (p - 1) alpha + n (p - 1)/p beta
double allgather_ring(int p, double n, const Link& link);

// lg p alpha + n (p - 1)/p (beta + gamma). If p is not a power of 2, the ranks above one send their data first and get their part
// last: (floor(lg p) + 2) alpha + n (1 + (p - 1)/p) (beta + gamma).
double reduce_scatter_halving(int p, double n, const Link& link);
// (p - 1) alpha + n (p - 1)/p (beta + gamma)
double reduce_scatter_pairwise(int p, double n, const Link& link);

// lg p (alpha + n beta + n gamma)
double allreduce_doubling(int p, double n, const Link& link);
// 2 lg p alpha + 2 n (p - 1)/p beta + n (p - 1)/p gamma. If p is not a power of 2:
// (2 floor(lg p) + 2) alpha + (2 (p - 1)/p + 2) n beta + n (1 + (p - 1)/p) gamma.
double allreduce_rabenseifner(int p, double n, const Link& link);
// 2 (p - 1) alpha + 2 n (p - 1)/p beta + n (p - 1)/p gamma
double allreduce_ring(int p, double n, const Link& link);
// 2 lg p alpha + 2 n beta + n gamma: the limit of many small pieces, without the latency of the pieces
double allreduce_double_tree(int p, double n, const Link& link);

// lg p alpha + n/2 lg p beta
double alltoall_bruck(int p, double n, const Link& link);
// (p - 1) alpha + n beta
double alltoall_pairwise(int p, double n, const Link& link);

// Planes of m bytes to and from two neighbours along one split dimension: 2 alpha + 2 m beta one after the other, alpha + m beta
// if both directions travel at once.
double halo(double m, const Link& link, bool both_at_once = false);

}  // namespace cost

struct Algorithm {
  std::string name;  // as in the functions above, without the collective: "ring"
  double seconds = 0;
};

// All algorithms of a collective, in the order above. A barrier, which has no bytes, costs like a broadcast of nothing.
std::vector<Algorithm> algorithms(CollectiveKind collective, int p, double n, const Link& link);
// The algorithm that takes least time; the first of equal ones.
Algorithm best(CollectiveKind collective, int p, double n, const Link& link);

}  // namespace mpigrad::planner
