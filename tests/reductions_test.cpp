// Reductions over ranks besides the sum, and prefix reductions: values and gradients against sums written out, ties and zeros
// included; adjoint test at second order.

#include "comm/reductions.h"
#include "comm/scan.h"

#include <cmath>
#include <limits>
#include <vector>

#include "comm/grid.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/views.h"
#include "tests/support/errors.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr std::int64_t rows = 7;
constexpr int sizes[] = {1, 2, 3, 4, 7};
constexpr ReduceOp all[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min, ReduceOp::prod};

// Small integers, so that ties and zeros abound. Row 0 is tied on all ranks, row 1 zero on all, row 2 on rank 0 alone.
double element(int rank, std::int64_t i) {
  if (i == 0) return 2;
  if (i == 1 || (i == 2 && rank == 0)) return 0;
  return static_cast<double>((rank * 5 + i * 3 + rank * i) % 4 - 1);
}
double seed_of(int rank, std::int64_t i) { return 1 + 0.25 * static_cast<double>((3 * rank + 2 * i) % 5); }

Tensor vector_of(int rank, double (*f)(int, std::int64_t), DType dtype = DType::float64) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows; ++i) values.push_back(f(rank, i));
  return from_vector({rows, 1}, values, dtype);
}

double identity(ReduceOp op) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return op == ReduceOp::prod ? 1 : op == ReduceOp::max ? -infinity : op == ReduceOp::min ? infinity : 0;
}

// The reduction of column i over ranks [first, last), and its derivative by x of rank r.
double value(ReduceOp op, int first, int last, std::int64_t i, int size) {
  double y = op == ReduceOp::prod ? 1 : op == ReduceOp::max ? -1e300 : op == ReduceOp::min ? 1e300 : 0;
  for (int s = first; s < last; ++s) {
    const double x = element(s, i);
    if (op == ReduceOp::prod) y *= x;
    else if (op == ReduceOp::max) y = std::max(y, x);
    else if (op == ReduceOp::min) y = std::min(y, x);
    else y += op == ReduceOp::avg ? x / size : x;
  }
  return y;
}
double derivative(ReduceOp op, int first, int last, std::int64_t i, int size, int r, Ties ties) {
  if (r < first || r >= last) return 0;
  if (op == ReduceOp::sum) return 1;
  if (op == ReduceOp::avg) return 1.0 / size;
  if (op == ReduceOp::prod) {
    double others = 1;
    for (int s = first; s < last; ++s)
      if (s != r) others *= element(s, i);
    return others;
  }
  const double m = value(op, first, last, i, size);
  if (element(r, i) != m) return 0;
  int before = 0, attained = 0;
  for (int s = first; s < last; ++s) attained += element(s, i) == m, before += s < r && element(s, i) == m;
  return ties == Ties::split ? 1.0 / attained : before == 0;
}

struct Case {
  std::string name;
  std::function<Tensor(const Tensor&, const Communicator&)> run;
  // Ranks [first, last) that element i of rank s's result reduces; empty: zeros that carry no cotangent.
  std::function<std::pair<int, int>(int s, std::int64_t i, int size)> ranks;
};

void check(const Case& c, ReduceOp op, Ties ties, const Communicator& comm) {
  const int size = comm.size(), mine = comm.rank();
  const auto what = fmt::format("{} {}", c.name, name_of(op));
  const auto x = vector_of(mine, element).as_variable();
  const auto u = constant(vector_of(mine, seed_of));
  Tape tape;
  const auto y = c.run(x, comm);
  const auto gradient = tape.gradient(sum(y * (y.dim(0) == rows ? u : slice(u, 0, 0, y.dim(0)))), {x})[0];
  // Rows of a block of reduce_scatter are numbered from the block's first.
  const auto cuts = balanced_cuts(rows, size);
  const bool block = c.name == "reduce_scatter";
  const auto offset = [&](int s) { return block ? cuts[static_cast<std::size_t>(s)] : 0; };
  const auto found = y.to_vector(), slopes = gradient.to_vector();
  for (std::int64_t i = 0; i < y.dim(0); ++i) {
    const auto [first, last] = c.ranks(mine, i + offset(mine), size);
    const double expected = first != last        ? value(op, first, last, i + offset(mine), size)
                            : c.name == "exscan" ? identity(op)
                                                 : 0;
    require(found[static_cast<std::size_t>(i)] == expected || std::abs(found[static_cast<std::size_t>(i)] - expected) < 1e-13,
            "[test] {}: row {} is {} instead of {}", what, i, found[static_cast<std::size_t>(i)], expected);
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    double expected = 0;
    for (int s = 0; s < size; ++s) {
      if (block && (i < cuts[static_cast<std::size_t>(s)] || i >= cuts[static_cast<std::size_t>(s) + 1])) continue;
      const auto [first, last] = c.ranks(s, i, size);
      if (first != last) expected += seed_of(s, i - offset(s)) * derivative(op, first, last, i, size, mine, ties);
    }
    require(std::abs(slopes[static_cast<std::size_t>(i)] - expected) < 1e-13, "[test] {}: gradient of row {} is {} instead of {}",
            what, i, slopes[static_cast<std::size_t>(i)], expected);
  }
}

Rows blocks(const Communicator& comm) {
  const auto cuts = balanced_cuts(rows, comm.size());
  Rows result;
  for (std::size_t r = 1; r < cuts.size(); ++r) result.push_back(cuts[r] - cuts[r - 1]);
  return result;
}

}  // namespace

TEST_CASE("reductions: values and gradients of all operations, at ties and zeros") {
  const auto everyone = [](int, std::int64_t, int size) { return std::pair{0, size}; };
  for (const int size : sizes)
    for (const auto op : all)
      for (const auto ties : {Ties::split, Ties::first})
        check_on_ranks(size, "reductions", [&](const Communicator& comm) {
          const int root = comm.size() / 2;
          check({"allreduce", [&](const Tensor& x, const auto& c) { return allreduce(x, c, op, ties); }, everyone}, op, ties,
                comm);
          check({"reduce", [&](const Tensor& x, const auto& c) { return reduce(x, c, root, op, ties); },
                 [&](int s, std::int64_t, int p) {
                   return std::pair{0, s == root ? p : 0};
                 }},
                op, ties, comm);
          check({"reduce_scatter", [&](const Tensor& x, const auto& c) { return reduce_scatter(x, c, blocks(c), op, ties); },
                 everyone},
                op, ties, comm);
          if (op == ReduceOp::avg) return;
          check({"scan", [&](const Tensor& x, const auto& c) { return scan(x, c, op, ties); },
                 [](int s, std::int64_t, int) {
                   return std::pair{0, s + 1};
                 }},
                op, ties, comm);
          check({"exscan", [&](const Tensor& x, const auto& c) { return exscan(x, c, op, ties); },
                 [](int s, std::int64_t, int) {
                   return std::pair{0, s};
                 }},
                op, ties, comm);
        });
}

TEST_CASE("reductions: second order") {
  for (const int size : sizes)
    check_on_ranks(size, "second order", [](const Communicator& comm) {
      // Elements apart from each other, so that differences do not cross a tie.
      std::vector<double> values;
      for (std::int64_t i = 0; i < rows; ++i) values.push_back(0.5 + 0.1 * static_cast<double>((comm.rank() * 3 + i * 5) % 11));
      const auto x = from_vector({rows, 1}, values, DType::float64);
      const AdjointOptions curved{.linear = false};
      for (const auto op : {ReduceOp::prod, ReduceOp::max}) {
        const std::string name(name_of(op));
        require_adjoint(
            "allreduce " + name, [&](const Tensors& in) { return Tensors{allreduce(in[0], comm, op)}; }, {x}, comm, curved);
        require_adjoint(
            "reduce " + name, [&](const Tensors& in) { return Tensors{reduce(in[0], comm, 0, op)}; }, {x}, comm, curved);
        require_adjoint(
            "reduce_scatter " + name, [&](const Tensors& in) { return Tensors{reduce_scatter(in[0], comm, blocks(comm), op)}; },
            {x}, comm, curved);
      }
      for (const auto op : {ReduceOp::max, ReduceOp::min})
        for (const auto direction : {Direction::up, Direction::down})
          require_adjoint(
              "scan max", [&](const Tensors& in) { return Tensors{scan(in[0], comm, op, Ties::split, direction)}; }, {x}, comm,
              curved);
      for (const auto op : {ReduceOp::sum, ReduceOp::prod})
        require_adjoint("exscan",
                        [&](const Tensors& in) {
                          return Tensors{scan(in[0], comm, op), exscan(in[0], comm, op)};
                        },
                        {x}, comm, {.linear = op == ReduceOp::sum});
      require_adjoint(
          "affine_scan", [&](const Tensors& in) { return Tensors{affine_scan(in[0], in[1], comm)}; }, {x, x * 2}, comm, curved);
    });
}

TEST_CASE("reductions: affine_scan is the recurrence") {
  for (const int size : sizes)
    check_on_ranks(size, "affine_scan", [](const Communicator& comm) {
      const auto y = affine_scan(vector_of(comm.rank(), element), vector_of(comm.rank(), seed_of), comm).to_vector();
      for (std::int64_t i = 0; i < rows; ++i) {
        double expected = 0;
        for (int s = 0; s <= comm.rank(); ++s) expected = element(s, i) * expected + seed_of(s, i);
        require(std::abs(y[static_cast<std::size_t>(i)] - expected) < 1e-12, "[test] row {}: {} instead of {}", i,
                y[static_cast<std::size_t>(i)], expected);
      }
    });
}

TEST_CASE("reductions: integers pass unrecorded, what cannot be is refused by name") {
  check_on_ranks(3, "integers", [](const Communicator& comm) {
    const auto x = vector_of(comm.rank(), element, DType::int64);
    Tape tape;
    for (const auto op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::prod}) {
      const auto y = allreduce(x, comm, op).to_vector();
      for (std::int64_t i = 0; i < rows; ++i)
        require(y[static_cast<std::size_t>(i)] == value(op, 0, 3, i, 3), "[test] {} of integers", name_of(op));
    }
    require(tape.entries().empty(), "[test] integers were recorded");
    const auto expect = [](const char* start, const std::function<void()>& body) {
      const auto text = error_text(body);
      require(text.starts_with(start), "[test] '{}' instead of '{}'", text, start);
    };
    expect("[allreduce] the average of integers", [&] { allreduce(x, comm, ReduceOp::avg); });
    expect("[scan] the average of integers", [&] { scan(x, comm, ReduceOp::avg); });
    expect("[scan] there is no prefix average", [&] { scan(vector_of(0, element), comm, ReduceOp::avg); });
    expect("[allreduce] logical_and is for booleans", [&] { allreduce(vector_of(0, element), comm, ReduceOp::logical_and); });
    expect("[exscan] logical_or is for booleans", [&] { exscan(x, comm, ReduceOp::logical_or); });
    expect("[reduce] root 3", [&] { reduce(x, comm, 3, ReduceOp::max); });
    expect("[affine_scan] a is", [&] { affine_scan(x, vector_of(0, element), comm); });
  });
}
