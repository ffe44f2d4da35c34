// Sums in the order of ranks, and communication in 16 bits.

#include "comm/transport/summation_mode.h"

#include <cmath>

#include "comm/check/adjoint_check.h"
#include "comm/messages/nonblocking.h"
#include "framework/tensor/half.h"
#include "ops/elementwise/elementwise.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// Values of very different size, so that the order of a sum is visible.
Tensor part(int rank, std::int64_t n, DType type = DType::float32) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i)
    values.push_back(
        std::ldexp(1 + 0.37 * static_cast<double>((i * 7 + rank * 3) % 11), (rank * 5 + static_cast<int>(i) * 3) % 7 - 3));
  return from_vector({n}, values, type);
}

Tensor in_order(int ranks, std::int64_t n, DType type = DType::float32) {
  Tensor sum = part(0, n, type);
  for (int r = 1; r < ranks; ++r) sum = sum + part(r, n, type);
  return sum;
}

bool equal_bits(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0);
}

}  // namespace

TEST_CASE("reduction mode: a fixed order is the order of ranks, in every reduction") {
  for (const int ranks : {1, 2, 3, 4, 7})
    for (const std::int64_t n : {0, 1, 5, 1000})
      check_on_ranks(ranks, "fixed order", [&](const Communicator& world) {
        const auto comm = world.with({.fixed_order = true});
        const auto mine = part(comm.rank(), n), expected = in_order(comm.size(), n);
        require(equal_bits(allreduce(mine, comm), expected), "[test] allreduce of {}", n);
        require(equal_bits(wait(iallreduce(mine, comm)), expected), "[test] iallreduce of {}", n);
        for (int root = 0; root < comm.size(); ++root) {
          const auto at_root = comm.rank() == root ? expected : zeros_like(expected);
          require(equal_bits(reduce(mine, comm, root), at_root), "[test] reduce of {}", n);
          require(equal_bits(wait(ireduce(mine, comm, root)), at_root), "[test] ireduce of {}", n);
        }
        Rows rows(static_cast<std::size_t>(comm.size()), 0);
        rows.back() = n;
        const auto block = comm.rank() + 1 == comm.size() ? expected : zeros({0});
        require(equal_bits(reduce_scatter(mine, comm, rows), block), "[test] reduce_scatter of {}", n);
        require(equal_bits(wait(ireduce_scatter(mine, comm, rows)), block), "[test] ireduce_scatter of {}", n);
        // Sub-communicators and duplicates inherit the mode.
        require(equal_bits(allreduce(mine, comm.duplicate()), expected), "[test] duplicate");
      });
}

TEST_CASE("reduction mode: a fixed order has the same adjoints") {
  check_on_ranks(3, "adjoint", [](const Communicator& world) {
    const auto comm = world.with({.fixed_order = true});
    require_adjoint(
        "allreduce and reduce_scatter",
        [&](const Tensors& in) {
          return Tensors{allreduce(in[0], comm), reduce_scatter(in[0], comm, {1, 0, 4}), wait(iallreduce(in[0], comm))};
        },
        {part(comm.rank(), 5, DType::float64)}, comm);
  });
}

TEST_CASE("reduction mode: 16-bit data are reduced as float32, or in 16 bit with a rounding at each step") {
  for (const auto type : {DType::bfloat16, DType::float16})
    for (const int ranks : {1, 2, 3, 5})
      check_on_ranks(ranks, "16 bit", [&](const Communicator& comm) {
        const std::int64_t n = 37;
        const auto mine = part(comm.rank(), n, type);
        Tensor wide = cast(part(0, n, type), DType::float32), narrow = part(0, n, type);
        for (int r = 1; r < comm.size(); ++r) {
          wide = wide + cast(part(r, n, type), DType::float32);
          narrow = narrow + part(r, n, type);
        }
        const auto rounded_once = cast(wide, type);
        require(equal_bits(allreduce(mine, comm), rounded_once), "[test] allreduce");
        require(equal_bits(wait(iallreduce(mine, comm)), rounded_once), "[test] iallreduce");
        require(equal_bits(reduce(mine, comm, 0), comm.rank() == 0 ? rounded_once : zeros_like(mine)), "[test] reduce");
        Rows rows(static_cast<std::size_t>(comm.size()), 0);
        rows[0] = n;
        require(equal_bits(reduce_scatter(mine, comm, rows), comm.rank() == 0 ? rounded_once : zeros({0}, type)),
                "[test] reduce_scatter");
        const auto sixteen = comm.with({.fixed_order = true, .sixteen_bit = true});
        require(equal_bits(allreduce(mine, sixteen), narrow), "[test] allreduce in 16 bit");
        require(comm.size() < 3 || !equal_bits(narrow, rounded_once), "[test] the two ways do not differ here");
        // The gradient has the type of the data.
        Tape tape;
        const auto x = mine.as_variable();
        const auto g = tape.vjp({allreduce(x, comm)}, {ones_like(x)}, {x})[0];
        require(g.dtype() == type && g.to_vector()[0] == comm.size(), "[test] gradient {}", g);
      });
}

TEST_CASE("reduction mode: communicators keep the mode of the one that they are made of, and take another one") {
  // Three ranks, so that a rounding at each step differs from one at the end.
  check_on_ranks(3, "inherited", [](const Communicator& comm) {
    const std::int64_t n = 37;
    const auto mine = part(comm.rank(), n, DType::bfloat16), narrow = in_order(3, n, DType::bfloat16);
    Tensor wide = cast(part(0, n, DType::bfloat16), DType::float32);
    for (int r = 1; r < 3; ++r) wide = wide + cast(part(r, n, DType::bfloat16), DType::float32);
    const auto rounded_once = cast(wide, DType::bfloat16);
    require(!equal_bits(narrow, rounded_once), "[test] the two ways do not differ here");
    const auto expect = [&](std::string_view what, const Communicator& made, const Tensor& expected) {
      require(equal_bits(wait(iallreduce(mine, made)), expected), "[test] {}, non-blocking", what);
      for (auto* transport : {&made.transport(), &made.side(), &made.reductions()}) {
        const auto sum = zeros_like(mine);
        transport->allreduce(mine.raw(), sum.raw(), n, mine.dtype(), CombineOp::sum);
        require(equal_bits(sum, expected), "[test] {}", what);
      }
    };
    const SummationMode mode{.sixteen_bit = true};
    const auto sixteen = comm.with(mode);
    const std::vector<int> ranks{0, 1, 2};
    expect("duplicate", sixteen.duplicate(), narrow);
    expect("split", sixteen.split(0, comm.rank()), narrow);
    expect("subgroup", sixteen.subgroup(ranks), narrow);
    expect("duplicate, then 16 bit", comm.duplicate().with(mode), narrow);
    expect("split twice, then 16 bit", comm.split(0, comm.rank()).split(0, comm.rank()).with(mode), narrow);
    expect("16 bit, and back", sixteen.duplicate().with({}), rounded_once);
  });
}

TEST_CASE("reduction mode: what MPIGRAD_REDUCTIONS may say") {
  CHECK(parse_summation_mode("") == SummationMode{});
  CHECK(parse_summation_mode("fixed,16bit") == SummationMode{.fixed_order = true, .sixteen_bit = true});
  for (const char* text : {"Fixed", "fixed,", ",fixed", "16"}) {
    CAPTURE(text);
    CHECK(error_text([&] { parse_summation_mode(text); }).starts_with("[reductions] MPIGRAD_REDUCTIONS knows"));
  }
}
