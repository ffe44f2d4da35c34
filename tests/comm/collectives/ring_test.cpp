// ring_logsumexp against the whole matrix: values, first and second derivatives, empty sums, memory.

#include "comm/collectives/ring.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Uneven blocks, some of them empty.
Rows rows_for(std::int64_t n, int ranks, int empty) {
  Rows rows(static_cast<std::size_t>(ranks), 0);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto r = static_cast<std::size_t>(i * i % ranks);
    ++rows[ranks > 1 && static_cast<int>(r) == empty ? (r + 1) % rows.size() : r];
  }
  return rows;
}
Tensor mine(const Tensor& x, const Rows& rows, int rank) {
  const auto begin = std::accumulate(rows.begin(), rows.begin() + rank, std::int64_t{0});
  return slice(x, 0, begin, begin + rows[static_cast<std::size_t>(rank)]);
}

// The result for all rows and columns, from one matrix.
Tensors whole(const Tensor& q, const Tensor& k, bool skip_own) {
  auto x = matmul(q, k, {.transpose_b = true});
  if (skip_own) {
    const auto own = constant(equal(unsqueeze(arange(q.dim(0)), 1), unsqueeze(arange(k.dim(0)), 0)));
    x = where(own, constant(full({}, -infinity, x.dtype())), x);
  }
  return {logsumexp(x, {1}), logsumexp(x, {0})};
}

Tensors objective_gradient(const Tensors& y, const Tensors& weights, Tape& tape, const Tensors& wanted) {
  Tensor objective;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto term = dot(y[i], weights[i]);
    objective = objective ? objective + term : term;
  }
  return tape.gradient(objective, wanted);
}

}  // namespace

TEST_CASE("ring_logsumexp: rows and columns are those of the whole matrix") {
  const std::int64_t n = 11, width = 4;
  for (const bool skip_own : {false, true}) {
    const auto m = skip_own ? n : 9;
    const auto q = random_tensor({n, width}, 1), k = random_tensor({m, width}, 2);
    const Tensors weights{random_tensor({n}, 3), random_tensor({m}, 4)};
    const auto expected = whole(q, k, skip_own);
    Tensors gradient;
    {
      Tape tape;
      gradient = objective_gradient(whole(q, k, skip_own), weights, tape, {q, k});
    }
    for (const int size : {1, 2, 3, 4, 5, 8})
      for (const std::int64_t tile : {1, 3, 64})
        check_on_ranks(size, "ring_logsumexp", [&](const Communicator& comm) {
          const auto q_rows = rows_for(n, size, 0), k_rows = skip_own ? q_rows : rows_for(m, size, size - 1);
          const auto part = [&](const Tensor& x, bool of_q) { return mine(x, of_q ? q_rows : k_rows, comm.rank()); };
          const auto q_ = part(q, true), k_ = part(k, false);
          const RingAttributes at{.rows = tile == 3 ? Rows() : k_rows, .skip_own = skip_own, .tile = tile};
          {
            Tape tape;
            const auto y = ring_logsumexps(q_, k_, comm, at);
            require_close("rows", y.rows, part(expected[0], true));
            require_close("columns", y.columns, part(expected[1], false));
            const auto g =
                objective_gradient({y.rows, y.columns}, {part(weights[0], true), part(weights[1], false)}, tape, {q_, k_});
            require_close("q", g[0], part(gradient[0], true));
            require_close("k", g[1], part(gradient[1], false));
          }
          require_close("rows alone", ring_logsumexp(q_, k_, comm, at), part(expected[0], true));
        });
  }
}

TEST_CASE("ring_logsumexp: adjoints of first and second order") {
  for (const int size : {1, 2, 3, 4})
    for (const bool columns : {false, true})
      for (const bool skip_own : {false, true})
        check_on_ranks(size, "ring_logsumexp", [&](const Communicator& comm) {
          const auto rows = rows_for(7, size, 0);
          const auto n = rows[static_cast<std::size_t>(comm.rank())];
          const auto seed = static_cast<std::uint64_t>(comm.rank());
          const RingAttributes at{.rows = rows, .skip_own = skip_own, .tile = 2};
          const auto f = [&](const Tensors& x) {
            if (!columns) return Tensors{ring_logsumexp(x[0], x[1], comm, at)};
            const auto y = ring_logsumexps(x[0], x[1], comm, at);
            return Tensors{y.rows, y.columns};
          };
          require_adjoint("ring_logsumexp", f, {random_tensor({n, 3}, 10 + seed), random_tensor({n, 3}, 20 + seed)}, comm,
                          {.linear = false});
        });
}

TEST_CASE("ring_logsumexp: large products do not overflow, sums of nothing are minus infinity") {
  for (const int size : {1, 3})
    check_on_ranks(size, "ring_logsumexp", [&](const Communicator& comm) {
      const double large = 3e3;  // products of 9e6
      const auto q = full({1, 1}, comm.rank() == 0 ? large : -large, DType::float64);
      Tape tape;
      const auto y = ring_logsumexp(q, q, comm, {.tile = 1});
      require(std::abs(y.item() - large * large - (comm.rank() == 0 ? 0 : std::log(std::max(1, comm.size() - 1)))) < 1e-6,
              "[test] found {}", y.item());
      const auto g = tape.gradient(sum(y), {q})[0].item();
      require(std::isfinite(g), "[test] gradient {}", g);
    });
  on_ranks(1, [](const Communicator& comm) {
    // The only column is the row's own.
    const auto q = ones({1, 2}, DType::float64);
    Tape tape;
    const auto y = ring_logsumexp(q, q, comm, {.skip_own = true});
    CHECK(y.item() == -infinity);
    const auto g = tape.gradient(sum(y), {q}, Record::yes)[0];
    CHECK(g.to_vector() == std::vector<double>{0, 0});
  });
  on_ranks(2, [](const Communicator& comm) {
    const auto q = ones({2, 3}, DType::float32), none = zeros({0, 3}, DType::float32);
    CHECK(ring_logsumexp(q, none, comm).to_vector() == std::vector<double>{-infinity, -infinity});
    CHECK(ring_logsumexps(none, q, comm).columns.to_vector() == std::vector<double>{-infinity, -infinity});
  });
}

TEST_CASE("ring_logsumexp: where a product overflows it is infinite, and so is its gradient's NaN where the matrix has it") {
  // In float32 the product of the first row and the second column is infinite, that of the second row and the third column is
  // minus infinity.
  const auto q = from_vector({3, 1}, {1e20, -1e20, 1}), k = from_vector({3, 1}, {1, 1e20, -1e-3});
  Tensors gradient;
  const auto expected = [&] {
    Tape tape;
    const auto y = whole(q, k, false);
    gradient = objective_gradient(y, {ones({3}), ones({3})}, tape, {q, k});
    return y;
  }();
  CHECK(expected[0].to_vector()[0] == infinity);
  const auto same = [](const char* what, const Tensor& a, const Tensor& b) {
    const auto x = a.to_vector(), y = b.to_vector();
    for (std::size_t i = 0; i < x.size(); ++i)
      require((std::isnan(x[i]) && std::isnan(y[i])) || x[i] == y[i] || std::abs(x[i] - y[i]) <= 1e-5 * std::abs(y[i]),
              "[test] {} {}: {} instead of {}", what, i, x[i], y[i]);
  };
  for (const int size : {1, 2, 3})
    for (const std::int64_t tile : {1, 64})
      check_on_ranks(size, "ring_logsumexp", [&](const Communicator& comm) {
        const auto rows = rows_for(3, size, -1);
        const auto q_ = mine(q, rows, comm.rank()), k_ = mine(k, rows, comm.rank());
        const RingAttributes at{.rows = rows, .tile = tile};
        Tape tape;
        const auto y = ring_logsumexps(q_, k_, comm, at);
        same("row", y.rows, mine(expected[0], rows, comm.rank()));
        same("column", y.columns, mine(expected[1], rows, comm.rank()));
        const auto g = objective_gradient({y.rows, y.columns}, {ones_like(y.rows), ones_like(y.columns)}, tape, {q_, k_});
        same("q", g[0], mine(gradient[0], rows, comm.rank()));
        same("k", g[1], mine(gradient[1], rows, comm.rank()));
      });
}

TEST_CASE("ring_logsumexp: memory grows linearly, that of the matrix with the square") {
  const auto peak = [](std::int64_t n, int ranks, bool ring) {
    std::int64_t bytes = 0;
    on_ranks(ranks, [&](const Communicator& comm) {
      const auto q = random_tensor({n / ranks, 8}, 1), k = random_tensor({n / ranks, 8}, 2);
      barrier(comm);
      const auto before = memory_statistics(DeviceKind::cpu).current_bytes;
      if (comm.rank() == 0) reset_peak_memory(DeviceKind::cpu);
      barrier(comm);
      {
        Tape tape;
        const auto y = ring ? ring_logsumexp(q, k, comm, {.tile = 32})
                            : logsumexp(matmul(q, allgather(k, comm), {.transpose_b = true}), {1});
        tape.gradient(sum(y), {q, k});
      }
      barrier(comm);
      if (comm.rank() == 0) bytes = memory_statistics(DeviceKind::cpu).peak_bytes - before;
      barrier(comm);
    });
    return static_cast<double>(bytes);
  };
  const double small = peak(512, 1, true), medium = peak(1024, 1, true), large = peak(2048, 1, true);
  INFO(small, ", ", medium, ", ", large);
  // Twice the rows: a factor of 2 for linear growth, 4 for quadratic.
  CHECK(large / medium < 3);
  CHECK((large - medium) / (medium - small) < 3.3);
  CHECK(peak(2048, 1, false) / peak(1024, 1, false) > 3.5);
  // Ranks whose memory peaks coincide or do not, in parts of the matrix.
  for (const int ranks : {1, 2}) {
    constexpr double matrix = 2048.0 * 2048 * 8;
    CHECK(peak(2048, ranks, true) < matrix / 8);
    CHECK(peak(2048, ranks, false) > matrix);
  }
}
