// Reductions over ranks, prefix reductions, located extremes.

#include <algorithm>
#include <array>
#include <limits>

#include "comm/collectives/scan.h"
#include "framework/base/joined.h"
#include "tests/comm/fuzz/adjoint_fuzz.h"

namespace mpigrad::testing {

ChosenReduction choose_reduction(FuzzContext& f, bool average, bool booleans) {
  constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::prod, ReduceOp::avg};
  ChosenReduction chosen{ops[f.below(average ? 5 : 4)], f.one_in(2) ? Ties::split : Ties::first, {}, true};
  if (chosen.op == ReduceOp::avg) f.only_floating(), f.no_half();
  if (booleans && !is_floating(f.dtype) && f.one_in(4)) {
    f.dtype = DType::boolean;
    constexpr ReduceOp logical[] = {ReduceOp::logical_and, ReduceOp::logical_or, ReduceOp::max, ReduceOp::min};
    chosen.op = logical[f.below(4)];
  }
  const bool extreme = chosen.op == ReduceOp::max || chosen.op == ReduceOp::min;
  chosen.exact = chosen.op == ReduceOp::sum || (extreme && chosen.ties == Ties::first);
  chosen.name = fmt::format("{}{}", name_of(chosen.op), extreme && chosen.ties == Ties::first ? " (ties first)" : "");
  return chosen;
}

namespace {

Shape any_shape(FuzzContext& f) {
  const auto kind = f.below(4);
  if (kind == 0) return {};
  return kind == 1 ? Shape{f.rows()} : Shape{f.rows(), f.dice(1, 2)};
}

FuzzCase make_allreduce(FuzzContext& f) {
  const auto c = choose_reduction(f, true, true);
  const auto shape = any_shape(f);
  return {.name = "allreduce " + c.name,
          .shapes = shapes_per_rank(f.ranks(), [&](auto) { return shape; }),
          .run = [comm = f.comm, c](const Tensors& x) { return Tensors{allreduce(x[0], comm, c.op, c.ties)}; },
          .expected =
              [c](const All& x) {
                const auto y = reduced_rows(x, c.op, c.ties);
                return per_rank(x.size(), [&](auto) { return y; });
              },
          .exact = c.exact};
}

FuzzCase make_reduce(FuzzContext& f) {
  const auto c = choose_reduction(f, true, true);
  const auto shape = any_shape(f);
  const int root = f.below(f.size());
  return {.name = fmt::format("reduce {} to {}", c.name, root),
          .shapes = shapes_per_rank(f.ranks(), [&](auto) { return shape; }),
          .run = [comm = f.comm, c, root](const Tensors& x) { return Tensors{reduce(x[0], comm, root, c.op, c.ties)}; },
          .expected =
              [c, root](const All& x) {
                return per_rank(x.size(), [&](std::size_t r) {
                  return r == static_cast<std::size_t>(root) ? reduced_rows(x, c.op, c.ties) : Row(x[r][0].size());
                });
              },
          .exact = c.exact};
}

FuzzCase make_reduce_scatter(FuzzContext& f) {
  const auto c = choose_reduction(f, true, true);
  const auto rows = f.rows_of_ranks();
  const auto width = f.dice(1, 2);
  return {.name = fmt::format("reduce_scatter {} of rows {}", c.name, mpigrad::joined(rows, ",")),
          .shapes = shapes_per_rank(f.ranks(),
                                    [&](auto) {
                                      return Shape{total_of(rows), width};
                                    }),
          .run = [comm = f.comm, c, rows](const Tensors& x) { return Tensors{reduce_scatter(x[0], comm, rows, c.op, c.ties)}; },
          .expected =
              [=](const All& x) {
                const auto y = reduced_rows(x, c.op, c.ties);
                return per_rank(x.size(), [&](std::size_t r) { return block_of(y, rows, r, width); });
              },
          .exact = c.exact};
}

double identity(ReduceOp op, DType dtype) {
  const bool lowest = op == ReduceOp::max || op == ReduceOp::logical_or;
  if (op == ReduceOp::sum || op == ReduceOp::prod) return op == ReduceOp::prod;
  if (is_floating(dtype)) return (lowest ? -1 : 1) * std::numeric_limits<double>::infinity();
  if (dtype == DType::boolean) return lowest ? 0 : 1;
  if (dtype == DType::int32) return lowest ? std::numeric_limits<std::int32_t>::min() : std::numeric_limits<std::int32_t>::max();
  return static_cast<double>(lowest ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max());
}

FuzzCase make_prefix(FuzzContext& f, bool exclusive) {
  const auto c = choose_reduction(f, false, true);
  const auto shape = any_shape(f);
  const auto direction = f.one_in(2) ? Direction::up : Direction::down;
  return {
      .name = fmt::format("{} {} {}", exclusive ? "exscan" : "scan", c.name, direction == Direction::up ? "up" : "down"),
      .shapes = shapes_per_rank(f.ranks(), [&](auto) { return shape; }),
      .run =
          [=, comm = f.comm](const Tensors& x) {
            return Tensors{exclusive ? exscan(x[0], comm, c.op, c.ties, direction) : scan(x[0], comm, c.op, c.ties, direction)};
          },
      .expected =
          [=, dtype = f.dtype](const All& x) {
            return per_rank(x.size(), [&](std::size_t r) {
              Row y;
              for (std::size_t i = 0; i < x[r][0].size(); ++i) {
                std::vector<Jet> terms;
                for (std::size_t n = 0; n < x.size(); ++n) {
                  const auto s = direction == Direction::up ? n : x.size() - 1 - n;
                  if (s == r && exclusive) break;
                  terms.push_back(x[s][0][i]);
                  if (s == r) break;
                }
                y.push_back(terms.empty() ? Jet{identity(c.op, dtype)} : reduced(terms, c.op, c.ties, x.size()));
              }
              return y;
            });
          },
      .exact = c.exact};
}
FuzzCase make_scan(FuzzContext& f) { return make_prefix(f, false); }
FuzzCase make_exscan(FuzzContext& f) { return make_prefix(f, true); }

FuzzCase make_affine_scan(FuzzContext& f) {
  const auto shape = any_shape(f);
  const auto direction = f.one_in(2) ? Direction::up : Direction::down;
  std::vector<std::vector<Shape>> shapes(f.ranks(), {shape, shape});
  return {.name = fmt::format("affine_scan {}", direction == Direction::up ? "up" : "down"),
          .shapes = shapes,
          .run = [=, comm = f.comm](const Tensors& x) { return Tensors{affine_scan(x[0], x[1], comm, direction)}; },
          .expected =
              [direction](const All& x) {
                All y(x.size());
                Row before(x[0][0].size());
                for (std::size_t n = 0; n < x.size(); ++n) {
                  const auto r = direction == Direction::up ? n : x.size() - 1 - n;
                  for (std::size_t i = 0; i < before.size(); ++i) before[i] = x[r][0][i] * before[i] + x[r][1][i];
                  y[r] = {before};
                }
                return y;
              },
          .exact = false};
}

FuzzCase make_located(FuzzContext& f) {
  f.no_half();
  const auto shape = any_shape(f);
  const bool max = f.one_in(2), given = f.one_in(2);
  const auto n = static_cast<std::size_t>(shape.elements());
  std::vector<std::vector<double>> index(f.ranks(), std::vector<double>(n));
  for (std::size_t r = 0; r < f.ranks(); ++r)
    for (auto& i : index[r]) i = given ? f.below(3) : static_cast<double>(r);
  return {.name = fmt::format("allreduce_{}loc{}", max ? "max" : "min", given ? " with indices" : ""),
          .shapes = shapes_per_rank(f.ranks(), [&](auto) { return shape; }),
          .run =
              [=, comm = f.comm, mine = index[f.me()]](const Tensors& x) {
                const auto i = given ? from_vector(shape, mine, DType::int64) : Tensor();
                const auto y = max ? allreduce_maxloc(x[0], comm, i) : allreduce_minloc(x[0], comm, i);
                return Tensors{y.value, y.index};
              },
          .expected =
              [=](const All& x) {
                Row value, at;
                for (std::size_t i = 0; i < n; ++i) {
                  std::vector<Jet> terms;
                  for (const auto& held : x) terms.push_back(held[0][i]);
                  const double m = reduced(terms, max ? ReduceOp::max : ReduceOp::min, Ties::split, x.size()).v;
                  double lowest = 1e9;
                  for (std::size_t r = 0; r < x.size(); ++r)
                    if (terms[r].v == m) lowest = std::min(lowest, index[r][i]);
                  std::vector<Jet> winners;
                  for (std::size_t r = 0; r < x.size(); ++r)
                    if (terms[r].v == m && index[r][i] == lowest) winners.push_back(terms[r]);
                  value.push_back(reduced(winners, ReduceOp::max, Ties::split, x.size()));
                  at.push_back({lowest});
                }
                return All(x.size(), Held{value, at});
              },
          .exact = false};
}

constexpr std::array makers{
    FuzzMaker{"allreduce", make_allreduce}, FuzzMaker{"reduce", make_reduce}, FuzzMaker{"reduce_scatter", make_reduce_scatter},
    FuzzMaker{"scan", make_scan},           FuzzMaker{"exscan", make_exscan}, FuzzMaker{"affine_scan", make_affine_scan},
    FuzzMaker{"maxloc", make_located}};

}  // namespace

std::span<const FuzzMaker> reduction_makers() { return makers; }

}  // namespace mpigrad::testing
