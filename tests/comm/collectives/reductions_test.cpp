// Reductions over ranks other than the sum, and prefix reductions: second derivatives against differences, and refusals. For
// values and gradients, also at ties and zeros, see adjoint_fuzz_test.cpp.

#include "comm/collectives/reductions.h"
#include "comm/collectives/scan.h"

#include <cmath>
#include <limits>
#include <vector>

#include "comm/collectives/user_reduction.h"
#include "comm/distributed/grid.h"
#include "ops/elementwise/elementwise.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "tests/support/errors.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr std::int64_t rows = 7;
constexpr int sizes[] = {1, 2, 3, 4, 7};

Rows blocks(const Communicator& comm) {
  const auto cuts = balanced_cuts(rows, comm.size());
  Rows result;
  for (std::size_t r = 1; r < cuts.size(); ++r) result.push_back(cuts[r] - cuts[r - 1]);
  return result;
}

}  // namespace

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

TEST_CASE("LogSumExp over ranks is logsumexp, at infinities and NaN too, and so is its gradient") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double numbers[] = {infinity, -infinity, std::nan(""), 1, 2.5};
  for (const int size : {1, 2, 3, 4})
    for (const auto dtype : {DType::float64, DType::float32, DType::bfloat16}) {
      // Every combination of these values over the ranks is a column.
      std::int64_t columns = 1;
      for (int r = 0; r < size; ++r) columns *= 5;
      std::vector<double> values;
      for (std::int64_t r = 0, step = 1; r < size; ++r, step *= 5)
        for (std::int64_t i = 0; i < columns; ++i) values.push_back(numbers[i / step % 5]);
      const auto all = from_vector({size, columns}, values, dtype);
      // Prefixes of the rows (all but the last rank's, and so on): their logsumexp and its derivatives with respect to each row.
      struct Prefix {
        Tensor y;
        std::vector<Tensor> by_rank;
      };
      std::vector<Prefix> prefixes{{full({columns}, -infinity, dtype), {}}};
      for (int terms = 1; terms <= size; ++terms) {
        const auto x = slice(all, 0, 0, terms).as_variable();
        Tape tape;
        const auto y = logsumexp(x, {0});
        const auto by_x = cast(tape.vjp({y}, {ones_like(y)}, {x})[0], DType::float64);
        prefixes.push_back({y, {}});
        for (int r = 0; r < terms; ++r) prefixes.back().by_rank.push_back(squeeze(slice(by_x, 0, r, r + 1), {0}));
      }
      check_on_ranks(size, "LogSumExp", [&](const Communicator& comm) {
        const auto rank = static_cast<std::size_t>(comm.rank());
        const auto x = squeeze(slice(all, 0, comm.rank(), comm.rank() + 1), {0}).as_variable();
        const auto close = [&](const char* what, const Tensor& found, const Tensor& expected) {
          const auto a = found.to_vector(), b = expected.to_vector();
          const double tolerance = dtype == DType::float64 ? 1e-13 : dtype == DType::float32 ? 1e-6 : 0.05;
          require(a.size() == b.size(), "[test] {} of {} elements, not {}", what, a.size(), b.size());
          for (std::size_t i = 0; i < a.size(); ++i)
            require((std::isnan(a[i]) && std::isnan(b[i])) || a[i] == b[i] ||
                        std::abs(a[i] - b[i]) <= tolerance * (1 + std::abs(b[i])),
                    "[test] {} of column {} on rank {} is {}, not {}, in {}", what, i, rank, a[i], b[i], name_of(dtype));
        };
        // f gives every rank s the reduction of the first terms(s) ranks; the cotangent of rank s is s + 1.
        const auto check = [&](const char* what, const auto& f, const auto& terms) {
          Tape tape;
          const auto y = f();
          close(what, y, prefixes[terms(rank)].y);
          auto expected = zeros({columns}, DType::float64);
          for (std::size_t s = 0; s < prefixes.size() - 1; ++s)
            if (rank < terms(s)) expected = expected + prefixes[terms(s)].by_rank[rank] * static_cast<double>(s + 1);
          close(what, tape.vjp({y}, {full(y.shape(), static_cast<double>(rank + 1), dtype)}, {x})[0], expected);
        };
        check(
            "allreduce", [&] { return allreduce(x, comm, LogSumExp{}); }, [&](std::size_t) { return prefixes.size() - 1; });
        check(
            "scan", [&] { return scan(x, comm, LogSumExp{}); }, [](std::size_t s) { return s + 1; });
        check(
            "exscan", [&] { return exscan(x, comm, LogSumExp{}); }, [](std::size_t s) { return s; });
      });
    }
}

TEST_CASE("reductions: bits of integers and booleans, which have no derivative") {
  check_on_ranks(3, "bits", [](const Communicator& comm) {
    const auto x = from_vector({2}, {double(1 << comm.rank() | 8), double(comm.rank())}, DType::int32);
    const auto wins = from_vector({2}, {1, double(comm.rank() == 1)}, DType::boolean);
    const std::vector<double> every{8, 0}, any{15, 3}, odd{15, 3};
    const auto is = [](const Tensor& got, const std::vector<double>& wanted) {
      require(got.to_vector() == wanted && got.is_constant(), "[test] {}", got);
    };
    is(allreduce(x, comm, ReduceOp::band), every);
    is(allreduce(x, comm, ReduceOp::bor), any);
    is(allreduce(x, comm, ReduceOp::bxor), odd);
    is(allreduce(wins, comm, ReduceOp::bxor), {1, 1});
    is(allreduce(wins, comm, ReduceOp::band), {1, 0});
    is(reduce(x, comm, 1, ReduceOp::bor), comm.rank() == 1 ? any : std::vector<double>{0, 0});
    is(reduce_scatter(concatenate({x, x, x}, 0), comm, {2, 2, 2}, ReduceOp::bxor), odd);
  });
}

TEST_CASE("reductions: what cannot be is refused by name") {
  check_on_ranks(3, "refusals", [](const Communicator& comm) {
    const auto x = arange(rows), y = ones({rows});
    const auto expect = [](const char* start, const std::function<void()>& body) {
      const auto text = error_text(body);
      require(text.starts_with(start), "[test] '{}' instead of '{}'", text, start);
    };
    expect("[allreduce] the average of integers", [&] { allreduce(x, comm, ReduceOp::avg); });
    expect("[scan] the average of integers", [&] { scan(x, comm, ReduceOp::avg); });
    expect("[scan] there is no prefix average", [&] { scan(y, comm, ReduceOp::avg); });
    expect("[allreduce] logical_and is for booleans", [&] { allreduce(y, comm, ReduceOp::logical_and); });
    expect("[exscan] logical_or is for booleans", [&] { exscan(x, comm, ReduceOp::logical_or); });
    expect("[allreduce] bxor is for integers and booleans", [&] { allreduce(y, comm, ReduceOp::bxor); });
    expect("[scan] there are no prefixes by band", [&] { scan(x, comm, ReduceOp::band); });
    expect("[reduce] root 3", [&] { reduce(x, comm, 3, ReduceOp::max); });
    expect("[affine_scan] a is", [&] { affine_scan(x, y, comm); });
  });
}
