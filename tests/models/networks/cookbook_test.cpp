// The ways to split a computation over ranks that the adjoint convention supports: each equals one process, on any number of
// ranks, with uneven and empty blocks.

#include <vector>

#include "comm/distributed/distributed.h"
#include "comm/distributed/grid.h"
#include "comm/distributed/invariant.h"
#include "framework/engine/parameter.h"
#include "framework/tensor/random.h"
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

constexpr std::int64_t samples = 7, features = 3, hidden = 4;
constexpr int sizes[] = {1, 2, 3, 4, 5, 8};  // on 8 ranks some rank has no sample

// All data; the same on every rank.
struct Data {
  Tensor x = random_tensor({samples, features}, 1), t = random_tensor({samples, hidden}, 2),
         w = random_tensor({hidden, features}, 3);
};

// This rank's rows of x.
Tensor rows_for(const Tensor& x, const Communicator& comm) {
  const auto cuts = balanced_cuts(x.dim(0), comm.size());
  const auto r = static_cast<std::size_t>(comm.rank());
  return slice(x, 0, cuts[r], cuts[r + 1]);
}
Rows rows_of(std::int64_t n, const Communicator& comm) {
  const auto cuts = balanced_cuts(n, comm.size());
  Rows rows;
  for (std::size_t r = 1; r < cuts.size(); ++r) rows.push_back(cuts[r] - cuts[r - 1]);
  return rows;
}

Tensor squared_error(const Tensor& x, const Tensor& t, const Tensor& w) {
  return sum(square(tanh(linear(x, w)) - t)) * (1.0 / samples);
}

Tensor identity(std::int64_t n, const Communicator* comm = nullptr) {
  const auto rows = arange(n);
  return constant(one_hot(comm ? rows_for(rows, *comm) : rows, n, DType::float64));
}

// -log softmax of similarities at the diagonal; `mine` marks the diagonal.
Tensor contrast(const Tensor& z, const Tensor& all, const Tensor& mine, const Tensor& temperature) {
  return -sum(log_softmax(matmul(z, all, {.transpose_b = true}) * temperature) * mine) * (1.0 / samples);
}

using Loss = std::function<Tensor(const Tensors&)>;
Tensors reference(const Loss& loss, const Tensors& with_respect_to) {
  Tape tape;
  return tape.gradient(loss(with_respect_to), with_respect_to);
}

// gradient and Hessian-vector product (of the sum of the gradients' squares) of `distributed` equal `whole`'s
void compare(const std::string& what, const Loss& whole,
             const std::function<Tensor(const Tensors&, const Communicator&)>& distributed, const Tensors& parameters) {
  const auto expected = reference(whole, parameters);
  const auto curvature = [&](const Loss& loss) {
    Tape tape;
    const auto g = tape.gradient(loss(parameters), parameters, Record::yes);
    Tensor objective;
    for (const auto& part : g) objective = objective ? objective + sum(square(part)) : sum(square(part));
    return tape.gradient(objective, parameters);
  };
  const auto expected_second = curvature(whole);
  for (const int size : sizes)
    check_on_ranks(size, what, [&](const Communicator& comm) {
      const Loss mine = [&](const Tensors& in) { return distributed(in, comm); };
      const auto found = reference(mine, parameters), found_second = curvature(mine);
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        require_close(fmt::format("gradient {}", i), found[i], expected[i]);
        require_close(fmt::format("second derivative {}", i), found_second[i], expected_second[i], 1e-11);
      }
    });
}

}  // namespace

TEST_CASE("cookbook: data parallel") {
  const Data d;
  compare(
      "data parallel", [&](const Tensors& p) { return squared_error(d.x, d.t, p[0]); },
      [&](const Tensors& p, const Communicator& comm) {
        return squared_error(rows_for(d.x, comm), rows_for(d.t, comm), replicate(p[0], comm));
      },
      {d.w});
}

TEST_CASE("cookbook: a penalty on the weights counts once") {
  const Data d;
  compare(
      "penalty", [&](const Tensors& p) { return squared_error(d.x, d.t, p[0]) + 0.3 * dot(p[0], exp(p[0])); },
      [&](const Tensors& p, const Communicator& comm) {
        const auto share = squared_error(rows_for(d.x, comm), rows_for(d.t, comm), replicate(p[0], comm));
        return share + once(0.3 * dot(p[0], exp(p[0])), comm);
      },
      {d.w});
}

TEST_CASE("cookbook: parameters and micro-batches, one reduction for all") {
  const Data d;
  const auto expected = reference([&](const Tensors& p) { return squared_error(d.x, d.t, p[0]); }, {d.w})[0];
  for (const int size : sizes)
    check_on_ranks(size, "micro-batches", [&](const Communicator& comm) {
      Parameters parameters;
      parameters.add("w", d.w, true);
      parameters.pack();
      const auto x = rows_for(d.x, comm), t = rows_for(d.t, comm);
      const auto step = [&](std::int64_t first, std::int64_t last, bool accumulate) {
        Tape tape(parameters);
        const auto w_ = replicate(parameters[0].value, comm);
        const auto share = squared_error(slice(x, 0, first, last), slice(t, 0, first, last), w_);
        return tape.gradient(share, {.accumulate = accumulate})[0];
      };
      const auto n = x.dim(0);
      require_close("whole", step(0, n, false), expected);
      step(0, n / 2, true);
      step(n / 2, n / 2, true);
      require_close("accumulated", step(n / 2, n, false), expected);
      require_close("nothing is left over", step(0, n, false), expected);
      // The last micro-batch does not use the parameter.
      step(0, n, true);
      Tape tape(parameters);
      require_close("used earlier only", tape.gradient(sum(x), {.accumulate = false})[0], expected);
    });
}

TEST_CASE("cookbook: a gradient between micro-batches neither takes nor loses what waits to be reduced") {
  const Data d;
  const auto expected = reference([&](const Tensors& p) { return squared_error(d.x, d.t, p[0]); }, {d.w})[0];
  const auto other = reference([&](const Tensors& p) { return sum(exp(p[0])); }, {d.w})[0];
  for (const int size : sizes)
    check_on_ranks(size, "between micro-batches", [&](const Communicator& comm) {
      Parameters parameters;
      parameters.add("w", d.w, true);
      parameters.pack();
      const auto& w = parameters[0].value;
      const auto x = rows_for(d.x, comm), t = rows_for(d.t, comm);
      const auto n = x.dim(0);
      const auto part = [&](std::int64_t first, std::int64_t last) {
        return squared_error(slice(x, 0, first, last), slice(t, 0, first, last), replicate(w, comm));
      };
      {
        Tape tape(parameters);
        tape.gradient(part(0, n / 2), {.accumulate = true});
      }
      for (int i = 0; i < 2; ++i) {
        Tape tape(parameters);
        const auto w_ = replicate(w, comm);  // the micro-batches have deferred its reduction
        const auto found = tape.gradient(sum(exp(w_)) / static_cast<double>(comm.size()), {w})[0];
        require_close("another objective", found, other);
      }
      const auto text = error_text([&] {
        Tape tape(parameters);
        tape.gradient(part(n / 2, n));
      });
      require(has(text, "[gradient] the parameters keep gradients of earlier micro-batches"), "[test] refused: {}", text);
      Tape tape(parameters);
      require_close("sum", tape.gradient(part(n / 2, n), {.accumulate = false})[0], expected);
    });
}

TEST_CASE("cookbook: sharded parameters") {
  const Data d;
  const auto expected = reference([&](const Tensors& p) { return squared_error(d.x, d.t, p[0]); }, {d.w})[0];
  for (const int size : sizes)
    check_on_ranks(size, "sharded parameters", [&](const Communicator& comm) {
      const auto shard = constant(rows_for(d.w, comm)).as_variable();
      Tape tape;
      const auto w_ = allgather(shard, comm, rows_of(hidden, comm));
      const auto share = squared_error(rows_for(d.x, comm), rows_for(d.t, comm), w_);
      require_close("gradient", tape.gradient(share, {shard})[0], rows_for(expected, comm));
      require(std::abs(total(share, comm) - squared_error(d.x, d.t, d.w).item()) < 1e-13, "[test] total");
    });
}

TEST_CASE("cookbook: contrastive, local rows against gathered columns") {
  const Data d;
  const auto heat = full({}, 1.3, DType::float64);
  const auto embed = [](const Tensor& x, const Tensor& w) { return tanh(linear(x, w)); };
  compare(
      "contrastive, local rows",
      [&](const Tensors& p) {
        const auto z = embed(d.x, p[0]);
        return contrast(z, z, identity(samples), p[1]);
      },
      [&](const Tensors& p, const Communicator& comm) {
        const auto z = embed(rows_for(d.x, comm), replicate(p[0], comm));
        return contrast(z, allgather(z, comm, rows_of(samples, comm)), identity(samples, &comm), replicate(p[1], comm));
      },
      {d.w, heat});
}

TEST_CASE("cookbook: contrastive, the full matrix on every rank") {
  const Data d;
  const auto heat = full({}, 1.3, DType::float64);
  const auto embed = [](const Tensor& x, const Tensor& w) { return tanh(linear(x, w)); };
  compare(
      "contrastive, full matrix",
      [&](const Tensors& p) {
        const auto z = embed(d.x, p[0]);
        return contrast(z, z, identity(samples), p[1]);
      },
      [&](const Tensors& p, const Communicator& comm) {
        const auto z = allgather_invariant(embed(rows_for(d.x, comm), replicate(p[0], comm)), comm, rows_of(samples, comm));
        return contrast(z, z, identity(samples), p[1]);  // replicated: counts once; so does its temperature
      },
      {d.w, heat});
}

TEST_CASE("cookbook: statistics of the whole batch by reduce_scatter") {
  const Data d;
  const auto correlation = [](const Tensor& x, const Tensor& w) {
    const auto z = tanh(linear(x, w));
    return matmul(z, z, {.transpose_a = true}) * (1.0 / samples);
  };
  const auto off_diagonal = [](const Tensor& c, const Tensor& eye) { return sum(square(c - eye) * (0.2 + 0.8 * eye)); };
  compare(
      "reduce_scatter of a product", [&](const Tensors& p) { return off_diagonal(correlation(d.x, p[0]), identity(hidden)); },
      [&](const Tensors& p, const Communicator& comm) {
        const auto mine = reduce_scatter(correlation(rows_for(d.x, comm), replicate(p[0], comm)), comm, rows_of(hidden, comm));
        return off_diagonal(mine, identity(hidden, &comm));
      },
      {d.w});
}

TEST_CASE("cookbook: statistics that each rank uses differently, by allreduce") {
  const Data d;
  const auto normalised = [](const Tensor& y, const Tensor& mean, const Tensor& t) { return sum(square(y - mean) * t); };
  compare(
      "allreduce of statistics",
      [&](const Tensors& p) {
        const auto y = exp(linear(d.x, p[0]));
        return normalised(y, sum(y, {0}) * (1.0 / samples), d.t);
      },
      [&](const Tensors& p, const Communicator& comm) {
        const auto y = exp(linear(rows_for(d.x, comm), replicate(p[0], comm)));
        return normalised(y, allreduce(sum(y, {0}), comm) * (1.0 / samples), rows_for(d.t, comm));
      },
      {d.w});
}

TEST_CASE("cookbook: tensor parallel, columns then rows") {
  const Data d;
  const auto v = random_tensor({2, hidden}, 9), t = random_tensor({samples, 2}, 10);
  const auto loss = [&](const Tensor& y) { return sum(square(y - t)); };
  const auto expected = reference([&](const Tensors& p) { return loss(linear(tanh(linear(p[0], p[1])), p[2])); }, {d.x, d.w, v});
  for (const int size : sizes)
    check_on_ranks(size, "tensor parallel", [&](const Communicator& comm) {
      const auto w = rows_for(d.w, comm).as_variable(), v_mine = transpose(rows_for(transpose(v), comm)).as_variable();
      Tape tape;
      const auto h = tanh(linear(replicate(d.x, comm), w));         // columns: each rank its own features
      const auto y = allreduce_invariant(linear(h, v_mine), comm);  // rows: their products are summed
      const auto g = tape.gradient(loss(y), {d.x, w, v_mine});
      require_close("x", g[0], expected[0]);
      require_close("w", g[1], rows_for(expected[1], comm));
      require_close("v", g[2], transpose(rows_for(transpose(expected[2]), comm)));
    });
}
