// Reductions over ranks besides the sum, and prefix reductions: second order against differences, and what is refused. Values and
// gradients, at ties and zeros too: adjoint_fuzz_test.cpp.

#include "comm/reductions.h"
#include "comm/scan.h"

#include <vector>

#include "comm/grid.h"
#include "ops/elementwise.h"
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
    expect("[reduce] root 3", [&] { reduce(x, comm, 3, ReduceOp::max); });
    expect("[affine_scan] a is", [&] { affine_scan(x, y, comm); });
  });
}
