// The adjoint check: it accepts right adjoints, and finds and locates planted errors.

#include "comm/check/adjoint_check.h"

#include <numeric>

#include "comm/distributed/invariant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// allgather whose vjp takes this rank's slice of its own cotangent and ignores the other ranks' cotangents.
struct ForgetfulAllGather {
  Communicator comm;
  Rows rows;
  static constexpr OpTraits traits() { return {.name = "forgetful_allgather", .communicates = true}; }
  Types infer(Inputs in) const { return ops::AllGather{comm, rows}.infer(in); }
  void run(Inputs in, Outputs out) const { ops::AllGather{comm, rows}.run(in, out); }
  Tensors vjp(const Replay&, Inputs g) const {
    const auto begin = std::accumulate(rows.begin(), rows.begin() + comm.rank(), std::int64_t{0});
    return {slice(g[0], 0, begin, begin + rows[static_cast<std::size_t>(comm.rank())])};
  }
};

// bcast whose adjoint uses the wrong root.
struct LostBcast {
  Communicator comm;
  static constexpr OpTraits traits() { return {.name = "lost_bcast", .communicates = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  void run(Inputs in, Outputs out) const { ops::Bcast{comm, 0}.run(in, out); }
  Tensors vjp(const Replay&, Inputs g) const { return {reduce(g[0], comm, comm.size() - 1)}; }
};

// The right first derivative, computed without recording.
struct UntapedAllReduce {
  Communicator comm;
  static constexpr OpTraits traits() { return {.name = "untaped_allreduce", .communicates = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  void run(Inputs in, Outputs out) const { ops::AllReduce{comm}.run(in, out); }
  Tensors vjp(const Replay&, Inputs g) const {
    Tensor result(g[0].type());
    comm.transport().allreduce(g[0].raw(), result.raw(), result.elements(), result.dtype(), CombineOp::sum);
    return {result};
  }
};

// replicate whose adjoint is the plain allreduce: the first derivative is right, the second P times too large.
struct PlainReplicate {
  Communicator comm;
  static constexpr OpTraits traits() { return {.name = "crooked", .communicates = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs in) const { return in[0].as_variable(); }
  Tensors vjp(const Replay&, Inputs g) const { return {allreduce(g[0], comm)}; }
};

// y = sum over ranks of x^2; its slope may be wrong, and so may the adjoint of its adjoint.
struct SquareSum {
  Communicator comm;
  double slope = 2;
  bool crooked = false;
  static constexpr OpTraits traits() { return {.name = "square_sum", .keeps_inputs = 1, .communicates = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs in) const {
    Untaped scope;
    return allreduce(square(in[0]), comm).as_variable();
  }
  Tensors vjp(const Replay& at, Inputs g) const {
    const auto sum = allreduce(g[0], comm);
    return {at.input(0) * (crooked ? mpigrad::apply(Untransposed{}, {sum}) : sum) * slope};
  }
  // Moves nothing, and declares a third of that as its adjoint.
  struct Untransposed {
    static constexpr OpTraits traits() { return {.name = "untransposed"}; }
    Types infer(Inputs in) const { return {in[0].type()}; }
    Tensor view(Inputs in) const { return in[0].as_variable(); }
    Tensors vjp(const Replay&, Inputs g) const { return {g[0] / 3}; }
  };
};

}  // namespace

TEST_CASE("adjoint check: planted mistakes are found") {
  for (const int size : {2, 3, 4})
    check_on_ranks(size, "planted mistakes", [](const Communicator& comm) {
      const Rows rows(static_cast<std::size_t>(comm.size()), 2);
      const auto x = zeros({2, 3}, DType::float64);
      const auto forgetful = adjoint_check(
          [&](const Tensors& in) {
            return Tensors{apply(ForgetfulAllGather{comm, rows}, {in[0]})};
          },
          {x}, comm);
      require(!forgetful.passed && forgetful.first > 1e-3, "[test] the forgetful allgather passed");
      const auto lost = adjoint_check([&](const Tensors& in) { return Tensors{apply(LostBcast{comm}, {in[0]})}; }, {x}, comm);
      require(!lost.passed && lost.first > 1e-3, "[test] the lost bcast passed");
      const auto untaped =
          adjoint_check([&](const Tensors& in) { return Tensors{apply(UntapedAllReduce{comm}, {in[0]})}; }, {x}, comm);
      require(!untaped.passed && untaped.first < 1e-12 && untaped.second > 1e-3, "[test] the vjp that bypasses ops passed");
      const auto plain = adjoint_check([&](const Tensors& in) { return Tensors{apply(PlainReplicate{comm}, {in[0]})}; }, {x},
                                       comm, {.inputs = {Across::same}, .outputs = {Across::varying}});
      require(!plain.passed && plain.first < 1e-12 && plain.second > 1e-3, "[test] the plain replicate passed");
      // A varying value that is declared as replicated.
      const auto varying = adjoint_check([&](const Tensors& in) { return Tensors{in[0] * (comm.rank() + 1.0)}; }, {x}, comm,
                                         {.inputs = {Across::same}, .outputs = {Across::same}});
      require(!varying.passed, "[test] a value that differs between ranks passed as the same");
    });
}

TEST_CASE("adjoint check: functions that are not linear, exactly and by differences") {
  for (const int size : {1, 3})
    check_on_ranks(size, "not linear", [](const Communicator& comm) {
      const auto x = from_vector({3}, {0.5 + comm.rank(), -1.25, 0.75 - comm.rank()}, DType::float64);
      const auto check = [&](const SquareSum& op) {
        return adjoint_check([&](const Tensors& in) { return apply_all(op, in); }, {x}, comm);
      };
      const auto right = check({comm});
      require(!right.linear && right.passed && right.exact < 1e-13 && right.first < 1e-9, "[test] {}", right.message);
      require(right.entries.contains("square_sum") && right.entries.contains("allreduce"), "[test] entries");
      // Self-consistent, but the adjoint of another function.
      const auto steep = check({comm, 2.001});
      require(!steep.passed && steep.exact < 1e-13 && steep.first > 1e-5, "[test] the wrong slope passed");
      // The right first derivative, by an op with a wrong transpose of its own.
      const auto crooked = check({comm, 2, true});
      require(!crooked.passed && crooked.first < 1e-9 && crooked.exact > 0.1, "[test] the wrong transpose passed");
      require(has(crooked.message, "<J v, u> and <v, J^T u> is off"), "[test] {}", crooked.message);
    });
}

TEST_CASE("adjoint check: outputs without a derivative are left out, inputs without one refused, failures named") {
  check_on_ranks(2, "edges", [](const Communicator& comm) {
    const auto x = zeros({comm.rank() * 2, 3}, DType::float64);  // nothing on rank 0
    require_adjoint(
        "allgather",
        [&](const Tensors& in) {
          return Tensors{allgather(in[0], comm), equal(in[0], in[0])};
        },
        {x}, comm);
    const auto integers = error_text([&] { adjoint_check([](const Tensors& in) { return in; }, {arange(3)}, comm); });
    require(integers.starts_with("[adjoint_check] inputs are floating-point or complex tensors: int64 [3]"), "[test] {}",
            integers);
    const auto wrong = error_text([&] {
      require_adjoint("a square", [](const Tensors& in) { return Tensors{square(in[0])}; }, {ones({2}, DType::float64)}, comm,
                      {.linear = true});
    });
    require(wrong.starts_with("[adjoint] a square on 2 ranks: first order is off by"), "[test] {}", wrong);
  });
}

TEST_CASE("adjoint check: it finds out whether a function is linear") {
  for (const int size : {1, 3})
    check_on_ranks(size, "linear or not", [](const Communicator& comm) {
      const auto one = from_vector({1}, {0.5}, DType::float64);
      const auto is_linear = [&](const TensorFunction& f, const Tensor& x) {
        const auto report = adjoint_check(f, {x}, comm,
                                          {.tolerance = x.dtype() == DType::float32 ? 1e-4 : 1e-11,
                                           .difference_tolerance = x.dtype() == DType::float32 ? 1e-2 : 1e-7});
        require(report.passed, "[test] {}", report.message);
        return report.linear;
      };
      const auto reduced = [&](const Tensors& in) { return Tensors{allreduce(in[0] * 3, comm)}; };
      require(is_linear(reduced, one) && is_linear(reduced, cast(one, DType::float32)), "[test] 3 x is linear");
      require(!is_linear([](const Tensors& in) { return Tensors{in[0] + 1}; }, one), "[test] x + 1 is not linear");
      require(!is_linear([](const Tensors& in) { return Tensors{relu(in[0])}; }, one), "[test] max(0, x) is not linear");
      // At a point outside the domain of the random points.
      require(!is_linear([](const Tensors& in) { return Tensors{log(in[0])}; }, one), "[test] log(x) is not linear");
    });
}

TEST_CASE("adjoint check: a kink beside x is told from a wrong derivative, and so is one at x") {
  for (const int size : {1, 3})
    check_on_ranks(size, "kinks", [](const Communicator& comm) {
      const auto f = [&](const Tensors& in) { return Tensors{allreduce(square(relu(in[0])), comm) + abs(in[0])}; };
      const auto at = [&](double x) { return Tensors{from_vector({2}, {1.5 + comm.rank(), x}, DType::float64)}; };
      // Farther away than any step: no warning.
      const auto smooth = adjoint_check(f, at(0.5), comm, {.linear = false});
      require(smooth.passed && smooth.kink.empty(), "[test] {} {}", smooth.message, smooth.kink);
      // Within the steps on every rank, but not within smaller ones.
      const auto beside = adjoint_check(f, at(3e-4), comm, {.linear = false});
      require(beside.passed && beside.message.empty() && beside.first < 1e-7, "[test] {}", beside.message);
      require(has(beside.kink, "first order: a kink or a sharp bend lies within 2e-03 of x"), "[test] {}", beside.kink);
      const auto on = adjoint_check(f, at(0), comm, {.linear = false});
      require(!on.passed && on.exact < 1e-12 && has(on.message, "first order: x lies on a kink"), "[test] {}", on.message);
      require(!has(on.message, "off by"), "[test] {}", on.message);
      // A wrong slope near a kink is still reported as wrong.
      const auto wrong = adjoint_check(
          [&](const Tensors& in) {
            return Tensors{apply(SquareSum{comm, 2.001}, {in[0]}) + abs(in[0])};
          },
          at(3e-4), comm, {.linear = false});
      require(!wrong.passed && wrong.kink.empty() && has(wrong.message, "first order is off by"), "[test] {}", wrong.message);
    });
}
