// Neighbourhood collectives on random graphs and grids; one-sided access.

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "comm/collectives/neighbor.h"
#include "comm/messages/nonblocking.h"
#include "comm/messages/one_sided.h"
#include "framework/base/joined.h"
#include "tests/comm/fuzz/adjoint_fuzz.h"

namespace mpigrad::testing {
namespace {

// The reference's view of one end of an edge: it receives block `block` of rank `peer`, or nothing from proc_null.
struct Arrival {
  int peer = proc_null;
  std::size_t block = 0;
};

struct Net {
  std::string name;
  Topology mine;
  std::vector<std::vector<int>> destinations;  // for every rank
  std::vector<std::vector<Arrival>> arrivals;
};

// Random edges: several between the same ranks, self edges, and ranks without edges.
Net random_graph(FuzzContext& f) {
  const auto p = f.ranks();
  Net net{"graph", {}, std::vector<std::vector<int>>(p), std::vector<std::vector<Arrival>>(p)};
  for (auto& list : net.destinations)
    if (!f.one_in(4))
      for (int i = f.below(5); i > 0; --i) list.push_back(f.below(f.size()));
  for (std::size_t s = 0; s < p; ++s)
    for (std::size_t i = 0; i < net.destinations[s].size(); ++i)
      net.arrivals[static_cast<std::size_t>(net.destinations[s][i])].push_back({static_cast<int>(s), i});
  for (const auto& list : net.destinations) net.name += fmt::format(" {};", mpigrad::joined(list, ","));
  net.mine = graph(f.comm, net.destinations[f.me()]);
  return net;
}

// Row-major; in each dimension block 2d goes down and block 2d + 1 up. A block received from below was sent up.
Net random_grid(FuzzContext& f) {
  const auto p = f.ranks();
  std::vector<int> extents;
  std::vector<bool> periodic;
  int rest = f.size();
  for (const int dimensions = 1 + f.below(3); static_cast<int>(extents.size()) < dimensions;) {
    int extent = static_cast<int>(extents.size()) + 1 == dimensions ? rest : 1 + f.below(rest);
    while (rest % extent != 0) --extent;
    extents.push_back(extent), periodic.push_back(f.one_in(2));
    rest /= extent;
  }
  Net net{fmt::format("grid {} periodic {}", mpigrad::joined(extents, "x"), fmt::join(periodic, ",")),
          cartesian(f.comm, extents, periodic), std::vector<std::vector<int>>(p), std::vector<std::vector<Arrival>>(p)};
  for (std::size_t r = 0; r < p; ++r) {
    std::vector<int> at(extents.size());
    int number = static_cast<int>(r);
    for (std::size_t d = extents.size(); d-- > 0;) at[d] = number % extents[d], number /= extents[d];
    const auto rank_at = [&](std::size_t d, int step) {
      auto there = at;
      there[d] += step;
      if (there[d] < 0 || there[d] >= extents[d]) {
        if (!periodic[d]) return proc_null;
        there[d] = (there[d] + extents[d]) % extents[d];
      }
      int rank = 0;
      for (std::size_t e = 0; e < extents.size(); ++e) rank = rank * extents[e] + there[e];
      return rank;
    };
    for (std::size_t d = 0; d < extents.size(); ++d)
      for (const int step : {-1, 1}) {
        net.destinations[r].push_back(rank_at(d, step));
        net.arrivals[r].push_back({rank_at(d, step), 2 * d + (step < 0 ? 1 : 0)});
      }
  }
  return net;
}

FuzzCase make_neighbor_alltoall(FuzzContext& f, const Net& net) {
  const auto width = f.dice(1, 2), missing = f.rows();
  std::vector<Rows> send(f.ranks());
  for (std::size_t s = 0; s < f.ranks(); ++s)
    for (std::size_t i = 0; i < net.destinations[s].size(); ++i) send[s].push_back(f.rows());
  const bool ask = f.one_in(3);
  // Rows of block i of rank r. With `ask` the block of an open end has as many rows as the rank would send there.
  const auto rows_of = [=](std::size_t r, std::size_t i) {
    const auto& a = net.arrivals[r][i];
    return a.peer != proc_null ? send[static_cast<std::size_t>(a.peer)][a.block] : ask ? send[r][i] : missing;
  };
  std::optional<Rows> receive = Rows();
  for (std::size_t i = 0; i < net.arrivals[f.me()].size(); ++i) receive->push_back(rows_of(f.me(), i));
  if (ask) receive.reset();
  const bool waits = !ask && f.one_in(2);
  return {.name = (waits ? "ineighbor_alltoall on " : "neighbor_alltoall on ") + net.name,
          .shapes = shapes_per_rank(f.ranks(),
                                    [&](std::size_t r) {
                                      return Shape{total_of(send[r]), width};
                                    }),
          .run =
              [=, mine = net.mine, rows = send[f.me()]](const Tensors& x) {
                return Tensors{waits ? wait(ineighbor_alltoall(x[0], mine, rows, *receive))
                                     : neighbor_alltoall(x[0], mine, rows, receive)};
              },
          .expected =
              [=](const All& x) {
                return per_rank(x.size(), [&](std::size_t r) {
                  Row y;
                  for (std::size_t i = 0; i < net.arrivals[r].size(); ++i) {
                    const auto& a = net.arrivals[r][i];
                    const auto from = static_cast<std::size_t>(a.peer);
                    const auto block = a.peer == proc_null ? Row(static_cast<std::size_t>(rows_of(r, i) * width))
                                                           : block_of(x[from][0], send[from], a.block, width);
                    y.insert(y.end(), block.begin(), block.end());
                  }
                  return y;
                });
              }};
}

FuzzCase make_neighbor_allgather(FuzzContext& f, const Net& net) {
  const auto width = f.dice(1, 2), missing = f.rows();
  const auto rows = f.rows_of_ranks();
  const bool ask = f.one_in(3);
  const auto rows_of = [=](std::size_t r, const Arrival& a) {
    return a.peer != proc_null ? rows[static_cast<std::size_t>(a.peer)] : ask ? rows[r] : missing;
  };
  std::optional<Rows> receive = Rows();
  for (const auto& a : net.arrivals[f.me()]) receive->push_back(rows_of(f.me(), a));
  if (ask) receive.reset();
  return {.name = "neighbor_allgather on " + net.name,
          .shapes = shapes_per_rank(f.ranks(),
                                    [&](std::size_t r) {
                                      return Shape{rows[r], width};
                                    }),
          .run = [=, mine = net.mine](const Tensors& x) { return Tensors{neighbor_allgather(x[0], mine, receive)}; },
          .expected =
              [=](const All& x) {
                return per_rank(x.size(), [&](std::size_t r) {
                  Row y;
                  for (const auto& a : net.arrivals[r]) {
                    const auto block = a.peer == proc_null ? Row(static_cast<std::size_t>(rows_of(r, a) * width))
                                                           : x[static_cast<std::size_t>(a.peer)][0];
                    y.insert(y.end(), block.begin(), block.end());
                  }
                  return y;
                });
              }};
}

FuzzCase make_on_graph(FuzzContext& f) {
  const auto net = random_graph(f);
  return f.one_in(2) ? make_neighbor_alltoall(f, net) : make_neighbor_allgather(f, net);
}
FuzzCase make_on_grid(FuzzContext& f) {
  const auto net = random_grid(f);
  return f.one_in(2) ? make_neighbor_alltoall(f, net) : make_neighbor_allgather(f, net);
}

// ---- one-sided access

struct Accesses {
  std::vector<Access> of;  // of every rank
  Rows windows;            // rows
  std::int64_t width;
};

// Random rows of random windows, also repeated; `once`: each row at most once.
Accesses random_accesses(FuzzContext& f, bool once) {
  Accesses a{std::vector<Access>(f.ranks()), f.rows_of_ranks(), f.dice(1, 2)};
  std::vector<std::pair<int, std::int64_t>> places;
  for (std::size_t r = 0; r < f.ranks(); ++r)
    for (std::int64_t i = 0; i < a.windows[r]; ++i) places.emplace_back(static_cast<int>(r), i);
  f.shuffle(places);
  for (auto& access : a.of)
    for (int n = f.below(5); n > 0 && !places.empty(); --n) {
      const auto place = once ? places.back() : places[static_cast<std::size_t>(f.below(static_cast<int>(places.size())))];
      if (once) places.pop_back();
      access.targets.push_back(place.first), access.rows.push_back(place.second);
    }
  return a;
}

// Row i of the accesses of rank r, as an index of elements of x[target][0].
std::size_t element(const Accesses& a, std::size_t r, std::size_t i, std::int64_t j) {
  return static_cast<std::size_t>(a.of[r].rows[i] * a.width + j);
}

FuzzCase make_get(FuzzContext& f) {
  const auto a = random_accesses(f, false);
  return {.name = "get",
          .shapes = shapes_per_rank(f.ranks(),
                                    [&](std::size_t r) {
                                      return Shape{a.windows[r], a.width};
                                    }),
          .run = [=, comm = f.comm, mine = a.of[f.me()]](const Tensors& x) { return Tensors{get(x[0], comm, mine)}; },
          .expected =
              [a](const All& x) {
                return per_rank(x.size(), [&](std::size_t r) {
                  Row y;
                  for (std::size_t i = 0; i < a.of[r].rows.size(); ++i)
                    for (std::int64_t j = 0; j < a.width; ++j)
                      y.push_back(x[static_cast<std::size_t>(a.of[r].targets[i])][0][element(a, r, i, j)]);
                  return y;
                });
              }};
}

FuzzCase make_update(FuzzContext& f, bool replaces) {
  const auto a = random_accesses(f, replaces);
  std::vector<std::vector<Shape>> shapes;
  for (std::size_t r = 0; r < f.ranks(); ++r)
    shapes.push_back({Shape{a.windows[r], a.width}, Shape{static_cast<std::int64_t>(a.of[r].rows.size()), a.width}});
  return {.name = replaces ? "put" : "accumulate",
          .shapes = shapes,
          .run =
              [=, comm = f.comm, mine = a.of[f.me()]](const Tensors& x) {
                return Tensors{replaces ? put(x[0], x[1], comm, mine) : accumulate(x[0], x[1], comm, mine)};
              },
          .expected =
              [=](const All& x) {
                All y;
                for (const auto& held : x) y.push_back({held[0]});
                for (std::size_t r = 0; r < x.size(); ++r)
                  for (std::size_t i = 0; i < a.of[r].rows.size(); ++i)
                    for (std::int64_t j = 0; j < a.width; ++j) {
                      auto& to = y[static_cast<std::size_t>(a.of[r].targets[i])][0][element(a, r, i, j)];
                      const auto& from = x[r][1][i * static_cast<std::size_t>(a.width) + static_cast<std::size_t>(j)];
                      to = replaces ? from : to + from;
                    }
                return y;
              }};
}
FuzzCase make_put(FuzzContext& f) { return make_update(f, true); }
FuzzCase make_accumulate(FuzzContext& f) { return make_update(f, false); }

constexpr std::array makers{FuzzMaker{"on a graph", make_on_graph}, FuzzMaker{"on a grid", make_on_grid},
                            FuzzMaker{"get", make_get}, FuzzMaker{"put", make_put}, FuzzMaker{"accumulate", make_accumulate}};

}  // namespace

std::span<const FuzzMaker> neighbor_makers() { return makers; }

}  // namespace mpigrad::testing
