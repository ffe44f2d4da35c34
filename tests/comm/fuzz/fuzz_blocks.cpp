// Operations that move blocks, in their blocking forms; replicated values; boxes.

#include <fmt/ranges.h>

#include <array>
#include <numeric>

#include "comm/collectives/alltoallw.h"
#include "comm/distributed/invariant.h"
#include "comm/halos/exchange.h"
#include "comm/messages/point_to_point.h"
#include "framework/base/joined.h"
#include "tests/comm/fuzz/adjoint_fuzz.h"

namespace mpigrad::testing {
namespace {

Row only_at(std::size_t root, std::size_t r, const Row& x) { return r == root ? x : Row(x.size()); }
All everywhere(std::size_t ranks, const Row& x) {
  return per_rank(ranks, [&](auto) { return x; });
}

// n[s][r]: rows from s to r.
std::vector<Rows> random_matrix(FuzzContext& f) {
  std::vector<Rows> n;
  for (std::size_t s = 0; s < f.ranks(); ++s) n.push_back(f.rows_of_ranks());
  return n;
}
Rows column(const std::vector<Rows>& n, std::size_t r) {
  Rows result;
  for (const auto& row : n) result.push_back(row[r]);
  return result;
}

CollectivePiece make_alltoall(FuzzContext& f, std::int64_t width) {
  const auto n = random_matrix(f);
  const auto send = n[f.me()], receive = column(n, f.me());
  const bool ask = f.one_in(3);
  return {.name = fmt::format("alltoall of rows {}", fmt::join(n, " ")),
          .shapes = shapes_per_rank(f.ranks(),
                                    [&](std::size_t r) {
                                      return Shape{total_of(n[r]), width};
                                    }),
          .run = [=, comm = f.comm](const Tensor& x) { return alltoall(x, comm, send, ask ? Rows() : receive); },
          .start = [=, comm = f.comm](const Tensor& x) { return ialltoall(x, comm, send, receive); },
          .expected =
              [=](const All& x) {
                return per_rank(x.size(), [&](std::size_t r) {
                  Row y;
                  for (std::size_t s = 0; s < x.size(); ++s) {
                    const auto block = block_of(x[s][0], n[s], r, width);
                    y.insert(y.end(), block.begin(), block.end());
                  }
                  return y;
                });
              }};
}

FuzzCase whole(const CollectivePiece& piece) {
  return {.name = piece.name,
          .shapes = piece.shapes,
          .run = [run = piece.run](const Tensors& x) { return Tensors{run(x[0])}; },
          .expected = piece.expected,
          .exact = piece.exact};
}
FuzzCase make_bcast(FuzzContext& f) { return whole(random_piece(f, CollectiveKind::bcast)); }
FuzzCase make_allgather(FuzzContext& f) { return whole(random_piece(f, CollectiveKind::allgather)); }
FuzzCase make_alltoall_case(FuzzContext& f) { return whole(random_piece(f, CollectiveKind::alltoall)); }

FuzzCase make_gather(FuzzContext& f) { return whole(random_piece(f, CollectiveKind::gather)); }
FuzzCase make_scatter(FuzzContext& f) { return whole(random_piece(f, CollectiveKind::scatter)); }

// Blocks of any shape; some are integers, which are communicated but carry no derivative.
FuzzCase make_alltoallw(FuzzContext& f) {
  const auto p = f.ranks();
  std::vector<std::vector<Shape>> shapes(p);
  std::vector<std::vector<bool>> integer(p);
  for (std::size_t s = 0; s < p; ++s)
    for (std::size_t r = 0; r < p; ++r) {
      const auto rank = f.below(3);
      shapes[s].push_back(rank == 0 ? Shape{} : rank == 1 ? Shape{f.rows()} : Shape{f.rows(), f.dice(1, 2)});
      integer[s].push_back(is_floating(f.dtype) && f.one_in(5));
    }
  const auto me = f.me();
  Types receive;
  for (std::size_t s = 0; s < p; ++s)
    receive.push_back(integer[s][me] ? TensorType{{2}, DType::int64} : TensorType{shapes[s][me], f.dtype});
  if (f.one_in(3)) receive.clear();
  std::string list;
  for (std::size_t s = 0; s < p; ++s)
    for (std::size_t r = 0; r < p; ++r)
      list += fmt::format("{}{}{}", to_string(shapes[s][r]), integer[s][r] ? "i" : "", r + 1 == p ? "; " : " ");
  return {.name = fmt::format("alltoallw {}{}", receive.empty() ? "(asks) " : "", list),
          .shapes = shapes,
          .run =
              [=, comm = f.comm](const Tensors& x) {
                Tensors blocks = x;
                for (std::size_t r = 0; r < x.size(); ++r)
                  if (integer[me][r]) blocks[r] = full({2}, static_cast<double>(10 * me + r), DType::int64);
                return alltoallw(blocks, comm, receive);
              },
          .expected =
              [=](const All& x) {
                All y(p);
                for (std::size_t r = 0; r < p; ++r)
                  for (std::size_t s = 0; s < p; ++s)
                    y[r].push_back(integer[s][r] ? Row(2, {static_cast<double>(10 * s + r)}) : x[s][r]);
                return y;
              }};
}

// A random partial permutation: some ranks send nothing, some receive nothing; every rank has its own number of rows and tag.
FuzzCase make_sendrecv(FuzzContext& f) {
  const auto p = f.ranks();
  std::vector<int> to(p), from(p, proc_null);
  std::iota(to.begin(), to.end(), 0);
  f.shuffle(to);
  for (auto& dest : to)
    if (f.one_in(4)) dest = proc_null;
  for (std::size_t r = 0; r < p; ++r)
    if (to[r] >= 0) from[static_cast<std::size_t>(to[r])] = static_cast<int>(r);
  const bool replace = f.one_in(3);
  const auto width = f.dice(1, 2), common = f.rows();
  const auto n = replace ? Rows(p, common) : f.rows_of_ranks();
  const auto source_of = [=](std::size_t r) { return static_cast<std::size_t>(from[r]); };
  const auto rows = [=](std::size_t r) { return from[r] < 0 ? common : n[source_of(r)]; };
  const auto tag = [](int rank) { return rank < 0 ? 0 : 10 + rank % 3; };
  const auto me = f.me();
  return {.name = fmt::format("sendrecv{} to {}", replace ? "_replace" : "", mpigrad::joined(to, ",")),
          .shapes = shapes_per_rank(p,
                                    [&](std::size_t r) {
                                      return Shape{n[r], width};
                                    }),
          .run =
              [=, comm = f.comm, rank = f.comm.rank()](const Tensors& x) {
                if (replace) return Tensors{sendrecv_replace(x[0], comm, to[me], from[me], tag(rank), tag(from[me]))};
                return Tensors{sendrecv(x[0], comm,
                                        {.dest = to[me],
                                         .source = from[me],
                                         .send_tag = tag(rank),
                                         .receive_tag = tag(from[me]),
                                         .receive_rows = rows(me)})};
              },
          .expected =
              [=](const All& x) {
                return per_rank(p, [&](std::size_t r) {
                  return from[r] < 0 ? Row(static_cast<std::size_t>(rows(r) * width)) : x[source_of(r)][0];
                });
              }};
}

FuzzCase make_shift(FuzzContext& f) {
  const Shape shape = f.one_in(4) ? Shape{} : Shape{f.rows(), f.dice(1, 2)};
  const int p = f.size(), by = static_cast<int>(f.dice(-p - 1, p + 1));
  return {.name = fmt::format("shift by {}", by),
          .shapes = shapes_per_rank(f.ranks(), [&](auto) { return shape; }),
          .run = [=, comm = f.comm](const Tensors& x) { return Tensors{shift(x[0], comm, by)}; },
          .expected =
              [=](const All& x) {
                return per_rank(x.size(), [&](std::size_t r) {
                  return x[static_cast<std::size_t>((static_cast<int>(r) + 4 * p - by) % p)][0];
                });
              }};
}

// replicate, allreduce_invariant, once.
FuzzCase make_same(FuzzContext& f) {
  const Shape shape = f.one_in(4) ? Shape{} : Shape{f.rows(), f.dice(1, 2)};
  FuzzCase c;
  c.shapes = shapes_per_rank(f.ranks(), [&](auto) { return shape; });
  switch (f.below(3)) {
    case 0:
      c.name = "replicate", c.in = Across::same;
      c.run = [comm = f.comm](const Tensors& x) { return Tensors{replicate(x[0], comm)}; };
      c.expected = [](const All& x) { return x; };
      break;
    case 1:
      c.name = "allreduce_invariant", c.out = Across::same;
      c.run = [comm = f.comm](const Tensors& x) { return Tensors{allreduce_invariant(x[0], comm)}; };
      c.expected = [](const All& x) { return everywhere(x.size(), reduced_rows(x, ReduceOp::sum, Ties::split)); };
      break;
    default:
      c.name = "once", c.in = Across::same;
      c.run = [comm = f.comm](const Tensors& x) { return Tensors{once(x[0], comm)}; };
      c.expected = [](const All& x) { return per_rank(x.size(), [&](std::size_t r) { return only_at(0, r, x[0][0]); }); };
  }
  return c;
}

// shard and allgather_invariant, with rows given or not.
FuzzCase make_blocks_of_same(FuzzContext& f) {
  const auto width = f.dice(1, 2);
  Rows rows = f.rows_of_ranks();
  const bool gathers = f.one_in(2), left_out = f.one_in(3);
  if (!gathers && left_out) {
    const auto cuts = balanced_cuts(total_of(rows), f.size());
    for (std::size_t r = 0; r < f.ranks(); ++r) rows[r] = cuts[r + 1] - cuts[r];
  }
  const auto shape = [&](std::size_t r) { return Shape{gathers ? rows[r] : total_of(rows), width}; };
  const auto given = left_out ? Rows() : rows;
  if (gathers)
    return {.name = fmt::format("allgather_invariant of rows {}", mpigrad::joined(rows, ",")),
            .out = Across::same,
            .shapes = shapes_per_rank(f.ranks(), shape),
            .run = [=, comm = f.comm](const Tensors& x) { return Tensors{allgather_invariant(x[0], comm, given)}; },
            .expected = [](const All& x) { return everywhere(x.size(), joined(x)); }};
  return {.name = fmt::format("shard of rows {}", mpigrad::joined(rows, ",")),
          .in = Across::same,
          .shapes = shapes_per_rank(f.ranks(), shape),
          .run = [=, comm = f.comm](const Tensors& x) { return Tensors{shard(x[0], comm, given)}; },
          .expected =
              [=](const All& x) { return per_rank(x.size(), [&](std::size_t r) { return block_of(x[r][0], rows, r, width); }); }};
}

// Every rank has one block of a grid cut at random in two dimensions, and needs a random box, which may extend beyond the grid.
FuzzCase make_exchange(FuzzContext& f) {
  const int p = f.size(), columns = p % 2 == 0 ? 2 : 1;
  const Shape global{f.dice(0, 5), f.dice(0, 4)};
  const auto a = f.dice.cuts(global[0], p / columns), b = f.dice.cuts(global[1], columns);
  auto plan = std::make_shared<BoxPlan>();
  for (int r = 0; r < p; ++r) {
    const auto i = static_cast<std::size_t>(r / columns), j = static_cast<std::size_t>(r % columns);
    plan->have.push_back({{a[i], b[j]}, {a[i + 1], b[j + 1]}});
    Box need;
    need.begin = need.end = Shape{0, 0};
    for (int d = 0; d < 2; ++d) {
      const auto ends = f.dice.cuts(global[d] + 2, 3);
      need.begin[d] = ends[1] - 1, need.end[d] = ends[2] - 1;
    }
    plan->need.push_back(f.one_in(4) ? plan->have.back() : need);
  }
  return {.name = "exchange of boxes",
          .shapes = shapes_per_rank(f.ranks(), [&](std::size_t r) { return plan->have[r].extents(); }),
          .run = [=, comm = f.comm](const Tensors& x) { return Tensors{exchange(x[0], comm, plan)}; },
          .expected =
              [plan](const All& x) {
                return per_rank(x.size(), [&](std::size_t r) {
                  Row y;
                  const auto& need = plan->need[r];
                  for (auto i = need.begin[0]; i < need.end[0]; ++i)
                    for (auto j = need.begin[1]; j < need.end[1]; ++j) {
                      Jet found;
                      for (std::size_t s = 0; s < x.size(); ++s) {
                        const auto& have = plan->have[s];
                        if (i < have.begin[0] || i >= have.end[0] || j < have.begin[1] || j >= have.end[1]) continue;
                        found =
                            x[s][0]
                             [static_cast<std::size_t>((i - have.begin[0]) * (have.end[1] - have.begin[1]) + j - have.begin[1])];
                      }
                      y.push_back(found);
                    }
                  return y;
                });
              }};
}

constexpr std::array makers{FuzzMaker{"bcast", make_bcast},
                            FuzzMaker{"gather", make_gather},
                            FuzzMaker{"scatter", make_scatter},
                            FuzzMaker{"allgather", make_allgather},
                            FuzzMaker{"alltoall", make_alltoall_case},
                            FuzzMaker{"alltoallw", make_alltoallw},
                            FuzzMaker{"sendrecv", make_sendrecv},
                            FuzzMaker{"shift", make_shift},
                            FuzzMaker{"same", make_same},
                            FuzzMaker{"blocks of same", make_blocks_of_same},
                            FuzzMaker{"exchange", make_exchange}};

}  // namespace

CollectivePiece random_piece(FuzzContext& f, CollectiveKind kind) {
  const auto width = f.dice(1, 2);
  const Shape shape{f.rows(), width};
  const auto alike = shapes_per_rank(f.ranks(), [&](auto) { return shape; });
  const auto rows = f.rows_of_ranks();
  const int root = f.below(f.size());
  const auto at = static_cast<std::size_t>(root);
  const bool ask = f.one_in(3);
  switch (kind) {
    case CollectiveKind::allreduce: {
      const auto c = choose_reduction(f, true, false);
      return {.name = "allreduce " + c.name,
              .shapes = alike,
              .run = [=, comm = f.comm](const Tensor& x) { return allreduce(x, comm, c.op, c.ties); },
              .start = [=, comm = f.comm](const Tensor& x) { return iallreduce(x, comm, c.op, c.ties); },
              .expected = [c](const All& x) { return everywhere(x.size(), reduced_rows(x, c.op, c.ties)); },
              .exact = c.exact};
    }
    case CollectiveKind::bcast:
      return {.name = fmt::format("bcast from {}", root),
              .shapes = alike,
              .run = [=, comm = f.comm](const Tensor& x) { return bcast(x, comm, root); },
              .start = [=, comm = f.comm](const Tensor& x) { return ibcast(x, comm, root); },
              .expected = [at](const All& x) { return everywhere(x.size(), x[at][0]); }};
    case CollectiveKind::reduce:
      return {.name = fmt::format("reduce to {}", root),
              .shapes = alike,
              .run = [=, comm = f.comm](const Tensor& x) { return reduce(x, comm, root); },
              .start = [=, comm = f.comm](const Tensor& x) { return ireduce(x, comm, root); },
              .expected =
                  [at](const All& x) {
                    const auto y = reduced_rows(x, ReduceOp::sum, Ties::split);
                    return per_rank(x.size(), [&](std::size_t r) { return only_at(at, r, y); });
                  }};
    case CollectiveKind::allgather:
      return {.name = fmt::format("allgather of rows {}", mpigrad::joined(rows, ",")),
              .shapes = shapes_per_rank(f.ranks(),
                                        [&](std::size_t r) {
                                          return Shape{rows[r], width};
                                        }),
              .run = [=, comm = f.comm](const Tensor& x) { return allgather(x, comm, ask ? Rows() : rows); },
              .start = [=, comm = f.comm](const Tensor& x) { return iallgather(x, comm, rows); },
              .expected = [](const All& x) { return everywhere(x.size(), joined(x)); }};
    case CollectiveKind::reduce_scatter:
      return {.name = fmt::format("reduce_scatter of rows {}", mpigrad::joined(rows, ",")),
              .shapes = shapes_per_rank(f.ranks(),
                                        [&](auto) {
                                          return Shape{total_of(rows), width};
                                        }),
              .run = [=, comm = f.comm](const Tensor& x) { return reduce_scatter(x, comm, rows); },
              .start = [=, comm = f.comm](const Tensor& x) { return ireduce_scatter(x, comm, rows); },
              .expected =
                  [=](const All& x) {
                    const auto y = reduced_rows(x, ReduceOp::sum, Ties::split);
                    return per_rank(x.size(), [&](std::size_t r) { return block_of(y, rows, r, width); });
                  }};
    case CollectiveKind::gather:
      return {.name = fmt::format("gather to {} of rows {}", root, mpigrad::joined(rows, ",")),
              .shapes = shapes_per_rank(f.ranks(),
                                        [&](std::size_t r) {
                                          return Shape{rows[r], width};
                                        }),
              .run = [=, comm = f.comm](const Tensor& x) { return gather(x, comm, root, ask ? Rows() : rows); },
              .start = [=, comm = f.comm](const Tensor& x) { return igather(x, comm, root, rows); },
              .expected =
                  [at](const All& x) { return per_rank(x.size(), [&](std::size_t r) { return r == at ? joined(x) : Row(); }); }};
    case CollectiveKind::scatter:
      return {.name = fmt::format("scatter from {} of rows {}", root, mpigrad::joined(rows, ",")),
              .shapes = shapes_per_rank(f.ranks(),
                                        [&](std::size_t r) {
                                          return Shape{r == at ? total_of(rows) : 0, width};
                                        }),
              .run = [=, comm = f.comm](const Tensor& x) { return scatter(x, comm, root, rows); },
              .start = [=, comm = f.comm](const Tensor& x) { return iscatter(x, comm, root, rows); },
              .expected =
                  [=](const All& x) {
                    return per_rank(x.size(), [&](std::size_t r) { return block_of(x[at][0], rows, r, width); });
                  }};
    case CollectiveKind::barrier:  // not tested here: no input and no output
    case CollectiveKind::alltoall: break;
  }
  return make_alltoall(f, width);
}

std::span<const FuzzMaker> block_makers() { return makers; }

}  // namespace mpigrad::testing
