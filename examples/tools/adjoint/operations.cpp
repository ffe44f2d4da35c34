#include "examples/tools/adjoint/operations.h"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "comm/collectives/neighbor.h"
#include "comm/collectives/scan.h"
#include "comm/distributed/invariant.h"
#include "comm/halos/exchange.h"
#include "comm/messages/nonblocking.h"
#include "comm/messages/one_sided.h"
#include "comm/messages/point_to_point.h"
#include "ops/views/views.h"

namespace mpigrad::adjoint {
namespace {

using X = const Tensor&;
using C = const Communicator&;
using P = const Problem&;

std::size_t rank_of(C comm) { return static_cast<std::size_t>(comm.rank()); }

TensorType arriving(C comm, P p) { return {Shape{p.y_sizes[rank_of(comm)]}, DType::float64}; }

Rows column(P p, std::size_t s) {
  Rows rows;
  for (const auto& row : p.matrix) rows.push_back(row[s]);
  return rows;
}

// The blocks that arrive at a rank on a graph, in the order of the sending ranks.
Rows arriving_rows(P p, std::size_t r) {
  Rows rows;
  for (std::size_t s = 0; s < p.graph.size(); ++s)
    for (std::size_t i = 0; i < p.graph[s].size(); ++i)
      if (static_cast<std::size_t>(p.graph[s][i]) == r) rows.push_back(p.matrix[s][i]);
  return rows;
}

// One of the two calls blocks while the other one is under way, so that a rank may send to itself, and rings cannot deadlock.
Tensor run_send(X x, C comm, P p) {
  auto receive = irecv(arriving(comm, p), comm, p.source[rank_of(comm)]);
  send(x, comm, p.dest[rank_of(comm)]);
  return wait(receive);
}
Tensor run_recv(X x, C comm, P p) {
  auto sent = isend(x, comm, p.dest[rank_of(comm)]);
  const auto y = recv(arriving(comm, p), comm, p.source[rank_of(comm)]);
  wait(sent);
  return y;
}
Tensor run_isend(X x, C comm, P p) {
  auto receive = irecv(arriving(comm, p), comm, p.source[rank_of(comm)]);
  auto sent = isend(x, comm, p.dest[rank_of(comm)]);
  wait(sent);
  return wait(receive);
}
Tensor run_sendrecv(X x, C comm, P p) {
  const auto r = rank_of(comm);
  return sendrecv(x, comm, {.dest = p.dest[r], .source = p.source[r], .receive_rows = p.y_sizes[r]});
}

// mpigrad::shift needs tensors of one shape; otherwise a sendrecv does the shift.
Tensor run_shift(X x, C comm, P p) {
  if (std::all_of(p.x.begin(), p.x.end(), [&](const auto& field) { return field.size() == p.x[0].size(); }))
    return shift(x, comm, p.by);
  const int n = comm.size(), r = comm.rank(), step = ((p.by % n) + n) % n;
  return sendrecv(x, comm, {.dest = (r + step) % n, .source = (r + n - step) % n, .receive_rows = p.y_sizes[rank_of(comm)]});
}

// All blocks, one after the other, are the line [0, n). A window [a - W, b + W) of the periodic line covers images [k n, (k + 1)
// n) of the line. Each image needs its own exchange, because an exchange delivers a cell only once; the results are concatenated.
Tensor run_halo(X x, C comm, P p) {
  std::vector<std::int64_t> cuts{0};
  for (const auto n : p.rows) cuts.push_back(cuts.back() + n);
  const auto box = [](std::int64_t begin, std::int64_t end) { return Box{Shape{begin}, Shape{std::max(begin, end)}}; };
  if (!p.periodic) {
    auto plan = std::make_shared<BoxPlan>();
    for (std::size_t r = 0; r < p.size(); ++r) {  // shifted by W, because boxes must not begin below 0
      plan->have.push_back(box(cuts[r] + p.width, cuts[r + 1] + p.width));
      plan->need.push_back(box(cuts[r], cuts[r + 1] + 2 * p.width));
    }
    return exchange(x, comm, plan);
  }
  const auto n = cuts.back(), turns = n == 0 ? 0 : (p.width + n - 1) / n;
  std::vector<Tensor> images;
  for (auto k = -turns; k <= turns; ++k) {
    auto plan = std::make_shared<BoxPlan>();
    for (std::size_t r = 0; r < p.size(); ++r) {
      plan->have.push_back(box(cuts[r], cuts[r + 1]));
      const auto begin = std::clamp(cuts[r] - p.width - k * n, std::int64_t{0}, n);
      plan->need.push_back(box(begin, std::clamp(cuts[r + 1] + p.width - k * n, std::int64_t{0}, n)));
    }
    images.push_back(exchange(x, comm, plan));
  }
  return concatenate(images, 0);
}

Access whole_window(C comm, P p, std::int64_t rows) {
  const int target = p.target[rank_of(comm)];
  return target < 0 ? Access{} : rows_of(target, 0, rows);
}
Tensor what_is_written(X x, C comm, P p) { return p.target[rank_of(comm)] < 0 ? slice(x, 0, 0, 0) : x; }
Tensor window(C comm, P p) { return zeros({p.y_sizes[rank_of(comm)]}, DType::float64); }

constexpr unsigned reduces = takes_reduce | takes_average;

// ---- the adjoints

constexpr std::string_view by_allreduce = "MPI_Allreduce: every rank gets the sum of all cotangents";
constexpr std::string_view by_bcast = "MPI_Bcast: every rank gets the root's cotangent, the others are ignored";
constexpr std::string_view by_reduce = "MPI_Reduce: the root gets the sum of all cotangents, the others get zeros";
constexpr std::string_view by_scatter = "MPI_Scatter(v): every rank gets its slice of the root's cotangent";
constexpr std::string_view by_gather = "MPI_Gather(v): the root gets all cotangents, one after the other";
constexpr std::string_view by_reduce_scatter = "MPI_Reduce_scatter: every rank gets its slice of the sum of all cotangents";
constexpr std::string_view by_allgather = "MPI_Allgather(v): every rank gets all cotangents, one after the other";
constexpr std::string_view by_alltoall = "MPI_Alltoall(v) with sent and received blocks exchanged: the blocks go back";
constexpr std::string_view by_message = "the opposite message: the receiver sends its cotangent back to the sender";

}  // namespace

const std::vector<Operation>& operations() {
  static const std::vector<Operation> table = {
      {"allreduce", reduces, false, false, shapes::equal, [](X x, C c, P p) { return allreduce(x, c, p.reduce, p.ties); },
       by_allreduce},
      {"reduce", reduces | takes_root, false, false, shapes::equal,
       [](X x, C c, P p) { return reduce(x, c, p.root, p.reduce, p.ties); }, by_bcast},
      {"bcast", takes_root, false, false, shapes::equal, [](X x, C c, P p) { return bcast(x, c, p.root); }, by_reduce},
      {"gather", takes_root | takes_counts, false, false, shapes::gather,
       [](X x, C c, P p) { return gather(x, c, p.root, p.rows); }, by_scatter},
      {"scatter", takes_root | takes_counts, false, false, shapes::scatter,
       [](X x, C c, P p) { return scatter(x, c, p.root, p.rows); }, by_gather},
      {"allgather", takes_counts, false, false, shapes::allgather, [](X x, C c, P p) { return allgather(x, c, p.rows); },
       by_reduce_scatter},
      {"reduce_scatter", reduces | takes_counts, false, false, shapes::reduce_scatter,
       [](X x, C c, P p) { return reduce_scatter(x, c, p.rows, p.reduce, p.ties); }, by_allgather},
      {"alltoall", takes_counts, false, false, shapes::alltoall,
       [](X x, C c, P p) { return alltoall(x, c, p.matrix[rank_of(c)], column(p, rank_of(c))); }, by_alltoall},
      {"scan", takes_reduce, false, false, shapes::equal, [](X x, C c, P p) { return scan(x, c, p.reduce, p.ties); },
       "MPI_Scan from the last rank to the first: every rank gets the sum of its own and all higher ranks' cotangents",
       Reduces::up_to_own},
      {"exscan", takes_reduce, false, false, shapes::equal, [](X x, C c, P p) { return exscan(x, c, p.reduce, p.ties); },
       "MPI_Exscan from the last rank to the first: every rank gets the sum of all higher ranks' cotangents",
       Reduces::before_own},
      {"send", takes_peers, false, false, shapes::message, run_send, by_message},
      {"recv", takes_peers, false, false, shapes::message, run_recv, by_message},
      {"isend", takes_peers, false, false, shapes::message, run_isend,
       "the opposite message, without waiting: the adjoint of MPI_Wait starts it and that of MPI_Isend completes it"},
      {"irecv", takes_peers, false, false, shapes::message, run_isend,
       "the opposite message, without waiting: the adjoint of MPI_Wait starts it and that of MPI_Irecv completes it"},
      {"sendrecv", takes_peers, false, false, shapes::message, run_sendrecv,
       "MPI_Sendrecv with destination and source exchanged"},
      {"sendrecv_replace", takes_peers, false, false, shapes::message_in_place,
       [](X x, C c, P p) { return sendrecv_replace(x, c, p.dest[rank_of(c)], p.source[rank_of(c)]); },
       "MPI_Sendrecv_replace with destination and source exchanged"},
      {"iallreduce", reduces, false, false, shapes::equal, [](X x, C c, P p) { return wait(iallreduce(x, c, p.reduce, p.ties)); },
       "MPI_Iallreduce: every rank gets the sum of all cotangents"},
      {"ireduce", takes_root, false, false, shapes::equal, [](X x, C c, P p) { return wait(ireduce(x, c, p.root)); },
       "MPI_Ibcast: every rank gets the root's cotangent, the others are ignored"},
      {"ibcast", takes_root, false, false, shapes::equal, [](X x, C c, P p) { return wait(ibcast(x, c, p.root)); },
       "MPI_Ireduce: the root gets the sum of all cotangents, the others get zeros"},
      {"iallgather", takes_counts, false, false, shapes::allgather, [](X x, C c, P p) { return wait(iallgather(x, c, p.rows)); },
       "MPI_Ireduce_scatter: every rank gets its slice of the sum of all cotangents"},
      {"ireduce_scatter", takes_counts, false, false, shapes::reduce_scatter,
       [](X x, C c, P p) { return wait(ireduce_scatter(x, c, p.rows)); },
       "MPI_Iallgather(v): every rank gets all cotangents, one after the other"},
      {"ialltoall", takes_counts, false, false, shapes::alltoall,
       [](X x, C c, P p) { return wait(ialltoall(x, c, p.matrix[rank_of(c)], column(p, rank_of(c)))); },
       "MPI_Ialltoall(v) with sent and received blocks exchanged: the blocks go back"},
      {"neighbor_allgather", takes_graph | takes_counts, false, false, shapes::neighbor_allgather,
       [](X x, C c, P p) { return neighbor_allgather(x, graph(c, p.graph[rank_of(c)])); },
       "MPI_Neighbor_alltoall(v) on the transposed graph, and the sum of what comes back"},
      {"neighbor_alltoall", takes_graph | takes_counts, false, false, shapes::neighbor_alltoall,
       [](X x, C c, P p) { return neighbor_alltoall(x, graph(c, p.graph[rank_of(c)]), p.matrix[rank_of(c)]); },
       "MPI_Neighbor_alltoall(v) on the transposed graph: the blocks go back"},
      {"ineighbor_alltoall", takes_graph | takes_counts, false, false, shapes::neighbor_alltoall,
       [](X x, C c, P p) {
         return wait(ineighbor_alltoall(x, graph(c, p.graph[rank_of(c)]), p.matrix[rank_of(c)], arriving_rows(p, rank_of(c))));
       },
       "MPI_Ineighbor_alltoall(v) on the transposed graph: the blocks go back"},
      {"get", takes_target, false, false, shapes::get,
       [](X x, C c, P p) { return get(x, c, whole_window(c, p, p.y_sizes[rank_of(c)])); },
       "MPI_Accumulate (sum): the cotangent is added to the owner's"},
      {"put", takes_target, false, false, shapes::put,
       [](X x, C c, P p) { return put(window(c, p), what_is_written(x, c, p), c, whole_window(c, p, x.dim(0))); },
       "MPI_Get: every rank fetches the cotangent of what it wrote"},
      {"accumulate", takes_target, false, false, shapes::accumulate,
       [](X x, C c, P p) { return accumulate(window(c, p), what_is_written(x, c, p), c, whole_window(c, p, x.dim(0))); },
       "MPI_Get: every rank fetches the cotangent of what it added to"},
      {"halo", takes_width, false, false, shapes::halo, run_halo,
       "the exchange backwards (MPI_Alltoallv with sent and received blocks exchanged): ghosts' cotangents go home and are "
       "added"},
      {"shift", takes_by, false, false, shapes::shift, run_shift, "MPI_Sendrecv with destination and source exchanged"},
      {"replicate", takes_nothing, true, false, shapes::equal, [](X x, C c, P) { return replicate(x, c); },
       "allreduce_invariant (MPI_Allreduce): the sum of all cotangents, one value that all ranks hold"},
      {"shard", takes_counts, true, false, shapes::shard, [](X x, C c, P p) { return shard(x, c, p.rows); },
       "allgather_invariant (MPI_Allgatherv): all cotangents one after the other, one value that all ranks hold"},
      {"allreduce_invariant", takes_nothing, false, true, shapes::equal, [](X x, C c, P) { return allreduce_invariant(x, c); },
       "replicate, which moves nothing: the cotangent is one value that all ranks hold already"},
      {"allgather_invariant", takes_counts, false, true, shapes::allgather_any,
       [](X x, C c, P p) { return allgather_invariant(x, c, p.rows); },
       "shard, which moves nothing: every rank takes its slice of the cotangent, which all ranks hold already"},
  };
  return table;
}

const Operation& find_operation(const std::string& name) {
  // MPI_Allreduce and Allreduce are names of allreduce.
  std::string plain = name.starts_with("MPI_") || name.starts_with("mpi_") ? name.substr(4) : name;
  std::transform(plain.begin(), plain.end(), plain.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string names;
  for (const auto& each : operations()) {
    if (each.name == plain) return each;
    if (plain == std::string(each.name) + "v" && (each.takes & takes_counts)) refuse("{} is {} with --counts", name, each.name);
    names += (names.empty() ? "" : ", ") + std::string(each.name);
  }
  refuse("'{}' is none of the operations {}", name, names);
}

std::string adjoint_sentence(const Problem& p) {
  const auto start = fmt::format("The adjoint of {}", p.operation->name);
  const bool prefix = p.operation->shape == shapes::equal && (p.operation->takes & takes_average) == 0;
  const auto ties = p.ties == Ties::split ? "split evenly among ranks that tie" : "given to the lowest of ranks that tie";
  switch (p.reduce) {
    case ReduceOp::avg: return fmt::format("{} (avg) is {}, divided by the number of ranks.", start, p.operation->adjoint);
    case ReduceOp::prod:
      if (prefix)
        return fmt::format("{} (prod): every prefix sends its cotangent to its ranks, times the others' product.", start);
      return fmt::format("{} (prod) is {}, times the product of the other ranks' x.", start, p.operation->adjoint);
    case ReduceOp::max:
    case ReduceOp::min:
      if (prefix)
        return fmt::format("{} ({}): every prefix sends its cotangent to the rank that attains it, {}.", start, name_of(p.reduce),
                           ties);
      return fmt::format("{} ({}) is {}, kept where x attains the {}imum, {}.", start, name_of(p.reduce), p.operation->adjoint,
                         name_of(p.reduce), ties);
    default: return fmt::format("{} is {}.", start, p.operation->adjoint);
  }
}

}  // namespace mpigrad::adjoint
