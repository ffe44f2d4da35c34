#include "comm/collectives/ring.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "comm/collectives/user_reduction.h"
#include "comm/messages/point_to_point.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/logsumexp.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace ops {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
// Different tags, because messages of a step may overtake each other.
constexpr int block_tag = 0, home_tag = 1, label_tag = 2;

// A half-open range; ranges(): those of at most `length` that cover n.
struct RowRange {
  std::int64_t begin = 0, end = 0;
};
std::vector<RowRange> ranges(std::int64_t n, std::int64_t length) {
  std::vector<RowRange> result;
  for (std::int64_t begin = 0; begin < n; begin += length) result.push_back({begin, std::min(n, begin + length)});
  return result;
}

Tensor rows_in(const Tensor& x, const RowRange& range) { return slice(x, 0, range.begin, range.end); }
std::vector<Tensor> tiles_of(const Tensor& x, const std::vector<RowRange>& at) {
  std::vector<Tensor> tiles;
  for (const auto& range : at) tiles.push_back(rows_in(x, range));
  return tiles;
}
Tensor joined(const std::vector<Tensor>& tiles, const Tensor& empty) { return tiles.empty() ? empty : concatenate(tiles, 0); }

void accumulate(Tensor& sum, const Tensor& x) { sum = sum ? sum + x : x; }

// Labels of the columns of a block, compared with the labels of this rank's rows.
struct Names {
  Tensor rows, columns;  // empty, or int64
  bool own = false;      // the block is this rank's: row i and column i are one sample
};

// Inner products of a tile; -infinity where row and column are the same sample, or have the same label.
Tensor products(const Tensor& q, const Tensor& k, const RowRange& rows, const RowRange& columns, const Names& names) {
  const auto x = matmul(q, k, {.transpose_b = true});
  const auto none = constant(full({}, -infinity, x.dtype()));
  if (names.rows)
    return where(equal(unsqueeze(rows_in(names.rows, rows), 1), unsqueeze(rows_in(names.columns, columns), 0)), none, x);
  const auto begin = std::max(rows.begin, columns.begin), end = std::min(rows.end, columns.end);
  if (!names.own || begin >= end) return x;
  UseDevice device(x.device());
  const auto places = [&](const RowRange& range) {
    return constant(arange(range.end - range.begin, DType::float64)) + static_cast<double>(range.begin);
  };
  return where(equal(unsqueeze(places(rows), 1), unsqueeze(places(columns), 0)), none, x);
}

// One trip round the ring. Blocks of `travelling` come by, the own one first; the next block, and its labels if there are any, is
// received meanwhile. `visit(block, names)` returns this rank's contribution to the result that travels with the block, or an
// empty tensor; `merge` combines it with the contributions of the other ranks.
template <class Visit, class Merge>
Tensor round_trip(const Tensor& travelling, const Communicator& comm, const RingAttributes& a, const Visit& visit,
                  const Merge& merge) {
  const int p = comm.size(), r = comm.rank(), next = (r + 1) % p, before = (r + p - 1) % p;
  UseDevice device(travelling.device());
  Tensor block = travelling, labels = a.labels;
  Request home_sent, home_coming;
  for (int step = 0; step < p; ++step) {
    Request coming, sent, labels_coming, labels_sent;
    if (step + 1 < p) {
      auto type = travelling.type();
      type.shape[0] = a.rows[static_cast<std::size_t>((r + p - step - 1) % p)];
      coming = irecv(type, comm, before, block_tag);
      sent = isend(block, comm, next, block_tag);
      if (labels) {
        labels_coming = irecv({Shape{type.shape[0]}, DType::int64}, comm, before, label_tag);
        labels_sent = isend(labels, comm, next, label_tag);
      }
    }
    Tensor mine = visit(block, Names{a.labels, labels, step == 0 && a.skip_own});
    if (mine && p > 1) {
      if (home_coming) mine = merge(wait(home_coming), mine);
      wait(home_sent);
      // After this step the previous rank has the block that comes here next; after the last step, this rank's own block.
      auto type = mine.type();
      type.shape[0] = a.rows[static_cast<std::size_t>((r + p - step - 1) % p)];
      home_coming = irecv(type, comm, before, home_tag);
      home_sent = isend(mine, comm, next, home_tag);
    } else if (mine) {
      return mine;
    }
    if (sent) {
      block = wait(coming);
      wait(sent);
    }
    if (labels_sent) {
      labels = wait(labels_coming);
      wait(labels_sent);
    }
  }
  const auto home = wait(home_coming);
  wait(home_sent);
  return home;
}

void fill(Tensor& y, const Tensor& from) { detail::copy_bytes(y.device(), y.raw(), from.raw(), y.bytes()); }

}  // namespace

Types RingLogSumExp::infer(Inputs in) const {
  const auto &q = in[0], &k = in[1];
  require(q.rank() == 2 && k.rank() == 2 && q.dim(1) == k.dim(1) && q.dtype() == k.dtype() &&
              (q.dtype() == DType::float32 || q.dtype() == DType::float64),
          "[ring_logsumexp] q and k are matrices of one width and type, float32 or float64: {} and {}", q, k);
  require(static_cast<int>(a.rows.size()) == comm.size() && k.dim(0) == a.rows[static_cast<std::size_t>(comm.rank())],
          "[ring_logsumexp] {} ranks announced {} numbers of rows, this one {}: {}", comm.size(), a.rows.size(),
          comm.rank() < static_cast<int>(a.rows.size()) ? a.rows[static_cast<std::size_t>(comm.rank())] : -1, k);
  require(!a.skip_own || q.dim(0) == k.dim(0), "[ring_logsumexp] rows of q and k are the same samples: {} and {}", q, k);
  require(!a.labels || (!columns && a.labels.type() == TensorType{Shape{q.dim(0)}, DType::int64} && q.dim(0) == k.dim(0)),
          "[ring_logsumexp] each row of q, and the row of k of the same sample, has a label, int64: {} for {} and {}", a.labels,
          q, k);
  require(a.tile > 0, "[ring_logsumexp] a tile has at least one row, got {}", a.tile);
  Types types{{Shape{q.dim(0)}, q.dtype()}};
  if (columns) types.push_back({Shape{k.dim(0)}, q.dtype()});
  return types;
}

Cost RingLogSumExp::cost(Inputs in, Outputs) const {
  const auto all = static_cast<double>(std::accumulate(a.rows.begin(), a.rows.end(), std::int64_t{0}));
  return {2 * all * static_cast<double>(in[0].elements()), static_cast<double>(in[0].bytes() + in[1].bytes())};
}

void RingLogSumExp::run(Inputs in, Outputs out) const {
  if (!comm.moves(in[0])) return;
  Untaped scope;
  const LogSumExp either;
  const auto row_ranges = ranges(in[0].dim(0), a.tile);
  const auto q = tiles_of(in[0], row_ranges);
  std::vector<Tensor> rows(q.size());
  const auto merge = [&](const Tensor& x, const Tensor& y) { return either.combine(x, y); };
  const auto visit = [&](const Tensor& block, const Names& names) -> Tensor {
    std::vector<Tensor> of_columns;
    for (const auto& range : ranges(block.dim(0), a.tile)) {
      const auto k = rows_in(block, range);
      Tensor of_tile;
      for (std::size_t i = 0; i < q.size(); ++i) {
        const auto x = products(q[i], k, row_ranges[i], range, names);
        const auto of_rows = logsumexp(x, {1});
        rows[i] = rows[i] ? merge(rows[i], of_rows) : of_rows;
        if (!columns) continue;
        const auto along = logsumexp(x, {0});
        of_tile = of_tile ? merge(of_tile, along) : along;
      }
      of_columns.push_back(of_tile ? of_tile : full({k.dim(0)}, -infinity, k.dtype()));
    }
    return columns ? joined(of_columns, zeros({0}, block.dtype())) : Tensor();
  };
  const auto home = round_trip(in[1], comm, a, visit, merge);
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (!rows[i]) rows[i] = full({q[i].dim(0)}, -infinity, q[i].dtype());
  fill(out[0], joined(rows, out[0]));
  if (columns) fill(out[1], home);
}

// With r, c the log-sum-exps of rows and columns, x_ij = q_i . k_j:
//   xbar_ij = rbar_i exp(x_ij - r_i) + cbar_j exp(x_ij - c_j),  qbar = xbar k,  kbar = xbar^T q.
// k travels, with c and cbar as two more columns, and the sum of kbar after it.
Tensors RingLogSumExp::vjp(const Replay& at, Inputs g) const {
  const auto &q_all = at.input(0), &k_all = at.input(1);
  const auto width = q_all.dim(1);
  const auto row_ranges = ranges(q_all.dim(0), a.tile);
  const auto q = tiles_of(q_all, row_ranges), r = tiles_of(unsqueeze(zero_if_nothing(at.output(0)), 1), row_ranges),
             rbar = tiles_of(unsqueeze(g[0], 1), row_ranges);
  std::vector<Tensor> qbar(q.size());
  const auto visit = [&](const Tensor& block, const Names& names) -> Tensor {
    std::vector<Tensor> kbar;
    for (const auto& range : ranges(block.dim(0), a.tile)) {
      const auto part = rows_in(block, range), k = columns ? slice(part, 1, 0, width) : part;
      const auto c = columns ? transpose(slice(part, 1, width, width + 1)) : Tensor(),
                 cbar = columns ? transpose(slice(part, 1, width + 1, width + 2)) : Tensor();
      Tensor of_tile;
      for (std::size_t i = 0; i < q.size(); ++i) {
        const auto x = products(q[i], k, row_ranges[i], range, names);
        auto xbar = exp_scaled(x, r[i], rbar[i]);
        if (columns) xbar = xbar + exp_scaled(x, c, cbar);
        accumulate(qbar[i], matmul(xbar, k));
        accumulate(of_tile, matmul(xbar, q[i], {.transpose_a = true}));
      }
      kbar.push_back(of_tile ? of_tile : zeros_like(k));
    }
    return joined(kbar, zeros_like(columns ? slice(block, 1, 0, width) : block));
  };
  const auto travelling =
      columns ? concatenate({k_all, unsqueeze(zero_if_nothing(at.output(1)), 1), unsqueeze(g[1], 1)}, 1) : k_all;
  const auto kbar = round_trip(travelling, comm, a, visit, [](const Tensor& x, const Tensor& y) { return x + y; });
  for (std::size_t i = 0; i < q.size(); ++i)
    if (!qbar[i]) qbar[i] = zeros_like(q[i]);
  return {joined(qbar, zeros_like(q_all)), kbar};
}

}  // namespace ops

namespace {

RingAttributes completed(const Tensor& k, const Communicator& comm, RingAttributes a) {
  if (a.rows.empty()) a.rows = rows_of_all(k, comm);
  if (a.tile == 0) a.tile = ring_tile(k.device());
  return a;
}

}  // namespace

Tensor ring_logsumexp(const Tensor& q, const Tensor& k, const Communicator& comm, const RingAttributes& attributes) {
  return mpigrad::apply(ops::RingLogSumExp{comm, completed(k, comm, attributes), false}, {q, k});
}

RingLogSumExps ring_logsumexps(const Tensor& q, const Tensor& k, const Communicator& comm, const RingAttributes& attributes) {
  const auto y = mpigrad::apply_all(ops::RingLogSumExp{comm, completed(k, comm, attributes), true}, {q, k});
  return {y[0], y[1]};
}

}  // namespace mpigrad
