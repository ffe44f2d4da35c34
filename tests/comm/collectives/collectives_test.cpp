// Differences between ranks: no loss, no rows, an unused value; one reduction with several uses. For values and adjoints of every
// operation see adjoint_fuzz_test.cpp.

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>

#include "comm/collectives/neighbor.h"
#include "comm/collectives/scan.h"
#include "comm/distributed/invariant.h"
#include "comm/messages/point_to_point.h"
#include "framework/base/warning.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr int sizes[] = {1, 2, 3, 4, 7};

// A function of rank, so that every rank knows the values of all ranks.
Tensor ramp(int rank, const Shape& shape) {
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 0.25 * (rank + 1) + 0.5 * static_cast<double>(i % 7) - 0.125 * static_cast<double>(i) * rank;
  return from_vector(shape, values, DType::float64);
}

}  // namespace

TEST_CASE("collectives: a transpose takes what its collective gives, and gives what it takes") {
  for (int k = 0; k <= static_cast<int>(CollectiveKind::alltoall); ++k) {
    const auto kind = static_cast<CollectiveKind>(k);
    const auto blocks = block_traits_of(kind), back = block_traits_of(blocks.transpose);
    INFO(std::string(name_of(kind)));
    CHECK(back.transpose == kind);
    CHECK(traits_of(blocks.transpose).rooted() == traits_of(kind).rooted());
    if (blocks.in == BlockRows::sent) continue;  // swaps the two lists of rows
    CHECK(back.in == blocks.out);
    CHECK(back.out == blocks.in);
  }
}

TEST_CASE("collectives: without `rows` the ranks tell each other") {
  for (const int size : sizes)
    check_on_ranks(size, "rows", [](const Communicator& comm) {
      const auto x = ramp(comm.rank(), {comm.rank() % 3, 2});
      const auto all = allgather(x, comm);
      std::int64_t expected = 0;
      for (int r = 0; r < comm.size(); ++r) expected += r % 3;
      require(all.dim(0) == expected, "[test] {}", all);
      require_close("gather", gather(x, comm, comm.size() - 1),
                    comm.rank() == comm.size() - 1 ? all : zeros({0, 2}, DType::float64), 0);
      require_close("allgather_invariant", allgather_invariant(x, comm), all, 0);
      require(rows_of_all(x, comm)[0] == 0, "[test] rows");
      const Rows send(static_cast<std::size_t>(comm.size()), comm.rank() % 2);
      const auto y = alltoall(ramp(comm.rank(), {comm.size() * (comm.rank() % 2), 3}), comm, send);
      require(y.dim(0) == comm.size() / 2, "[test] {}", y);
      // Balanced blocks.
      const auto whole = ramp(1, {10, 2});
      require_close("scatter", scatter(comm.rank() == 0 ? whole : zeros({0, 2}, DType::float64), comm), shard(whole, comm), 0);
      require_close("reduce_scatter", reduce_scatter(whole, comm), shard(whole, comm) * comm.size(), 1e-14);
      const auto cuts = balanced_cuts(10, comm.size());
      const auto mine = shard(ramp(0, {10, 2}), comm);
      const auto r = static_cast<std::size_t>(comm.rank());
      require_close("shard", mine, slice(ramp(0, {10, 2}), 0, cuts[r], cuts[r + 1]), 0);
    });
}

TEST_CASE("neighbourhood collectives: the open end of a grid has its block of zeros, asked for or given") {
  for (const int size : {1, 2, 4})
    check_on_ranks(size, "open ends", [](const Communicator& comm) {
      const auto line = cartesian(comm, {comm.size()}, {false});
      const int r = comm.rank(), last = comm.size() - 1;
      const auto rows = [](int rank) { return std::int64_t{rank} % 2 + 1; };
      const auto block = [&](int rank) {
        return rank < 0 || rank > last ? zeros({rows(r), 2}, DType::float64) : ramp(rank, {rows(rank), 2});
      };
      const auto x = ramp(r, {rows(r), 2});
      const auto expected = concatenate({block(r - 1), block(r + 1)}, 0);
      const Rows given{r > 0 ? rows(r - 1) : rows(r), r < last ? rows(r + 1) : rows(r)};
      Tape tape;
      const auto asked = neighbor_allgather(x, line), told = neighbor_allgather(x, line, given);
      require_close("asked for", asked, expected, 0);
      require_close("given", told, expected, 0);
      // xbar is the sum of the neighbours' cotangents; open ends contribute nothing.
      const auto neighbours = static_cast<double>((r > 0 ? 1 : 0) + (r < last ? 1 : 0));
      require_close("gradient", tape.gradient(sum(asked), {x})[0], full({rows(r), 2}, neighbours, DType::float64), 1e-14);
      // Different blocks each way: the block of an open end has as many rows as the block that would be sent there.
      const auto both = ramp(r, {3, 2});
      const auto y = neighbor_alltoall(both, line, {1, 2});
      require(y.dim(0) == (r > 0 ? 2 : 1) + (r < last ? 1 : 2), "[test] {}", y);
      if (r == 0) require_close("nothing came", slice(y, 0, 0, 1), zeros({1, 2}, DType::float64), 0);
    });
}

TEST_CASE("collectives: a barrier is replayed") {
  check_on_ranks(3, "barrier", [](const Communicator& comm) {
    const auto x = ramp(comm.rank(), {2});
    Tape tape;
    barrier(comm);
    const auto y = allreduce(x, comm);
    barrier(comm);
    require(tape.entries().size() == 3, "[test] {} entries", tape.entries().size());
    const auto g = tape.gradient(comm.rank() == 1 ? sum(y) : Tensor(), {x});
    require_close("gradient", g[0], ones({2}, DType::float64), 0);
  });
}

TEST_CASE("collectives: the loss of one rank only") {
  for (const int size : {2, 3, 4, 7})
    check_on_ranks(size, "loss of one rank", [](const Communicator& comm) {
      const int last = comm.size() - 1;
      const auto x = ramp(comm.rank(), {2, 3});
      {
        Tape tape;
        const auto all = allgather(x, comm);
        Tensor loss;
        if (comm.rank() == last) loss = sum(square(all));
        require_close("allgather", tape.gradient(loss, {x})[0], x * 2, 1e-13);
      }
      {
        Tape tape;
        const auto s = allreduce(x, comm);
        Tensor loss;
        if (comm.rank() == last) loss = sum(square(s));
        require_close("allreduce", tape.gradient(loss, {x})[0], constant(s) * 2, 1e-13);
      }
      {
        Tape tape;
        const auto from_left = shift(tanh(x), comm, 1);
        Tensor loss;
        if (comm.rank() == 0) loss = sum(from_left * ramp(9, {2, 3}));
        const auto expected = comm.rank() == last ? ramp(9, {2, 3}) * (1 - square(tanh(x))) : zeros_like(x);
        require_close("shift", tape.gradient(loss, {x})[0], expected, 1e-13);
      }
    });
}

TEST_CASE("collectives: no rank has a loss") {
  check_on_ranks(3, "no loss", [](const Communicator& comm) {
    const auto x = ramp(comm.rank(), {2});
    Tape tape;
    bcast(allreduce(x, comm), comm, 1);
    require_close("gradient", tape.gradient({}, {x})[0], zeros_like(x), 0);
  });
}

TEST_CASE("collectives: values that are received and not used, tensors used on one rank only") {
  for (const int size : {2, 3, 4, 7})
    check_on_ranks(size, "unused values", [](const Communicator& comm) {
      const int last = comm.size() - 1, next = (comm.rank() + 1) % comm.size(), before = (comm.rank() + last) % comm.size();
      const auto x = ramp(comm.rank(), {3});
      {
        // Only rank 0 uses what it receives; the ring continues.
        Tape tape;
        const auto y = sendrecv(x, comm, {.dest = next, .source = before});
        const auto z = sendrecv(x * 2, comm, {.dest = before, .source = next, .send_tag = 5, .receive_tag = 5});
        const auto loss = comm.rank() == 0 ? sum(y * z) : sum(x) * 0.5;
        auto expected = full({3}, comm.rank() == 0 ? 0 : 0.5, DType::float64);
        if (comm.rank() == last) expected = expected + ramp(1 % comm.size(), {3}) * 2;
        if (comm.rank() == 1 % comm.size()) expected = expected + ramp(last, {3}) * 2;
        require_close("ring", tape.gradient(loss, {x})[0], expected, 1e-13);
      }
      {
        // w is replicated, and only the last rank uses it; x of the other ranks is unused.
        const auto w = ramp(3, {3});
        Tape tape;
        const auto w_ = replicate(w, comm);
        Tensor loss;
        if (comm.rank() == last) loss = sum(w_ * x);
        require_close("w", tape.gradient(loss, {w, x})[0], ramp(last, {3}), 1e-13);
      }
      {
        // Integers are communicated and carry no derivative.
        const auto counts = from_vector({1}, {static_cast<double>(comm.rank())}, DType::int64);
        Tape tape;
        const auto all = allgather(counts, comm);
        require(allreduce(counts, comm).item() == 0.5 * comm.size() * last && all.is_constant(), "[test] integers");
        require(tape.entries().empty(), "[test] integers were recorded");
        allreduce(constant(x), comm);
        require(tape.entries().empty(), "[test] constants were recorded");
      }
    });
}

TEST_CASE("collectives: replicate is memoised, and its second derivative counts once") {
  for (const int size : {1, 2, 4})
    check_on_ranks(size, "replicate", [](const Communicator& comm) {
      const auto w = ramp(2, {4}), v = ramp(5, {4});
      const auto x = ramp(comm.rank(), {4});
      // f(w) = sum over ranks of sum exp(w x_r);  H v = sum x_r^2 exp(w x_r) v
      Tensor gradient = zeros_like(w), product = zeros_like(w);
      for (int r = 0; r < comm.size(); ++r) {
        const auto x_r = ramp(r, {4}), e = exp(w * x_r);
        gradient = gradient + x_r * e, product = product + square(x_r) * e * v;
      }
      Tape tape;
      const auto w_ = replicate(w, comm);
      require(replicate(w, comm).id() == w_.id(), "[test] two reductions");
      const auto g = tape.gradient(sum(exp(w_ * x)), {w}, Record::yes);
      require_close("gradient", g[0], gradient);
      const auto h = tape.gradient(dot(g[0], v), {w}, Record::yes);
      require_close("Hessian-vector product", h[0], product);

      Tape outer;
      Tensor inner_gradient;
      {
        Tape inner;
        inner_gradient = inner.gradient(sum(exp(replicate(w, comm) * x)), {w})[0];
      }
      require_close("nested", outer.gradient(dot(inner_gradient, v), {w})[0], product);
    });
}

TEST_CASE("collectives: two uses of a parameter are one reduction (dry)") {
  auto log = std::make_shared<std::vector<DryRecord>>();
  const Communicator comm(dry_world(1, 4, log));
  UseDevice device(DeviceKind::dry);
  const auto w = zeros({8}), x = zeros({8});
  Tape tape;
  const auto share = sum(replicate(w, comm) * x) + sum(exp(replicate(w, comm)));
  const auto g = tape.gradient(share, {w});
  REQUIRE(log->size() == 1);
  CHECK(log->front().kind == CollectiveKind::allreduce);
  CHECK(log->front().bytes == 32);
  CHECK(g[0].raw() == nullptr);
  CHECK(error_text([&] { alltoall(x, comm, {2, 2, 2, 2}); }).starts_with("[alltoall] the dry transport cannot ask"));
  CHECK(alltoall(x, comm, {2, 2, 2, 2}, {3, 3, 3, 3}).dim(0) == 12);
}

TEST_CASE("collectives: gradients of small parameters are reduced together") {
  const auto sum_of = [](const Tensors& parameters, const Communicator& comm, double factor) {
    Tensor sums = full({}, 0, DType::float64);
    for (const auto& p : parameters) sums = sums + sum(cast(replicate(p, comm), DType::float64)) * factor;
    return sums;
  };
  // Two types, one parameter that fills a bucket by itself, an empty one, enough small ones for three buckets.
  const auto make = [] {
    Tensors parameters{full({200000}, 1, DType::float64), full({0}, 1), full({7}, 1, DType::float64)};
    for (int i = 0; i < 30; ++i) parameters.push_back(full({100, 250}, 1));
    return parameters;
  };
  for (const int ranks : {2, 3})
    check_on_ranks(ranks, "buckets", [&](const Communicator& comm) {
      const auto parameters = make();
      Tape tape;
      const auto gradients = tape.gradient(sum_of(parameters, comm, comm.rank() + 1), parameters);
      for (std::size_t i = 0; i < gradients.size(); ++i)
        require(gradients[i].type() == parameters[i].type() &&
                    gradients[i].to_vector() == full(parameters[i].shape(), comm.size() * (comm.size() + 1) / 2).to_vector(),
                "[test] gradient of parameter {}: {}", i, gradients[i]);
    });
  auto log = std::make_shared<std::vector<DryRecord>>();
  const Communicator comm(dry_world(0, 4, log));
  UseDevice device(DeviceKind::dry);
  const auto parameters = make();
  Tape tape;
  tape.gradient(sum_of(parameters, comm, 1), parameters);
  std::vector<std::int64_t> bytes;
  for (const auto& record : *log) bytes.push_back(record.bytes);
  // From the last parameter on: eleven parameters of 100,000 bytes fill a bucket.
  CHECK(bytes == std::vector<std::int64_t>{1100000, 1100000, 1600000, 800000, 56});
}

TEST_CASE("collectives: a large gradient is reduced where it is") {
  const auto peak = [](int ranks) {
    UseDevice device(DeviceKind::dry);
    const Communicator comm(dry_world(0, ranks, nullptr));
    const auto w = full({1 << 20}, 1), x = constant(full({1 << 20}, 2));
    Tape tape;
    const auto share = sum(replicate(w, comm) * x);
    reset_peak_memory(DeviceKind::dry);
    const auto before = memory_statistics(DeviceKind::dry).current_bytes;
    tape.gradient(share, {w});
    return memory_statistics(DeviceKind::dry).peak_bytes - before;
  };
  CHECK(peak(1) >= 4 << 20);
  CHECK(peak(2) == peak(1));
  // A cotangent that another tensor shares is not changed.
  check_on_ranks(2, "a cotangent of two", [](const Communicator& comm) {
    const auto w = full({1 << 18}, 1), x = full({1 << 18}, 2), g = constant(random_normal({1 << 18}, {1, 3}));
    Tape tape;
    const auto gradients = tape.gradient(sum((replicate(w, comm) + x) * g), {w, x});
    const auto sums = gradients[0].to_vector(), own = gradients[1].to_vector(), factor = g.to_vector();
    for (std::size_t i = 0; i < factor.size(); ++i)
      require(sums[i] == 2 * factor[i] && own[i] == factor[i], "[test] element {}: {} and {}", i, sums[i], own[i]);
  });
}

TEST_CASE("collectives: misuse is refused by name") {
  check_on_ranks(2, "refusals", [](const Communicator& comm) {
    const auto x = ramp(comm.rank(), {3, 2});
    const auto expect = [](const char* start, const std::function<void()>& body) {
      const auto text = error_text(body);
      require(text.starts_with(start), "[test] '{}' instead of '{}'", text, start);
    };
    expect("[bcast] root 2", [&] { bcast(x, comm, 2); });
    expect("[gather] root -1", [&] { gather(x, comm, -1, {3, 3}); });
    expect("[allgather] 1 numbers of rows for 2 ranks", [&] { allgather(x, comm, {3}); });
    expect("[allgather] 4 rows were announced", [&] { allgather(x, comm, {4, 4}); });
    expect("[reduce_scatter] the blocks have 5 rows", [&] { reduce_scatter(x, comm, {2, 3}); });
    expect("[shard] the blocks have 4 rows", [&] { shard(x, comm, {2, 2}); });
    expect("[alltoall] the blocks to send", [&] { alltoall(x, comm, {2, 2}, {2, 2}); });
    expect("[sendrecv] peer 2", [&] { sendrecv(x, comm, {.dest = 2}); });
    expect("[allgather]", [&] { allgather(ones({}), comm, {1, 1}); });
    expect("[rows]", [&] { allgather(ones({}), comm); });
    expect("[gather] a block has -1 rows", [&] { gather(x, comm, 0, {-1, 3}); });
  });
}

TEST_CASE("collectives: blocks along any axis") {
  for (const int size : {1, 2, 3, 4})
    check_on_ranks(size, "axis", [](const Communicator& comm) {
      const int last = comm.size() - 1;
      // Equal to cutting and concatenating one global tensor [2, n, 3] along dimension 1.
      Rows rows;
      for (int r = 0; r < comm.size(); ++r) rows.push_back((r * 2 + 1) % 4);
      const auto n = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
      const auto before = std::accumulate(rows.begin(), rows.begin() + comm.rank(), std::int64_t{0});
      const auto whole = ramp(1, {2, n, 3});
      const auto mine = slice(whole, 1, before, before + rows[static_cast<std::size_t>(comm.rank())]);
      for (const int axis : {1, -2}) {
        require_close("allgather", allgather(mine, comm, {}, axis), whole, 0);
        require_close("gather", gather(mine, comm, last, {}, axis),
                      comm.rank() == last ? whole : zeros({2, 0, 3}, DType::float64), 0);
        require_close("scatter", scatter(comm.rank() == last ? whole : zeros({2, 0, 3}, DType::float64), comm, last, rows, axis),
                      mine, 0);
        require_close("reduce_scatter", reduce_scatter(whole, comm, rows, axis), mine * comm.size(), 1e-14);
        // Rank r's block s goes to rank s, so every rank gets its block from all ranks.
        const Rows receive(rows.size(), rows[static_cast<std::size_t>(comm.rank())]);
        const auto y = alltoall(whole, comm, rows, receive, axis);
        require_close("alltoall", y, concatenate(std::vector<Tensor>(rows.size(), mine), 1), 0);
        require_adjoint(
            "along an axis",
            [&](const Tensors& in) {
              return Tensors{allgather(in[0], comm, {}, axis), gather(in[0], comm, last, {}, axis),
                             reduce_scatter(in[1], comm, rows, axis), alltoall(in[1], comm, rows, receive, axis)};
            },
            {mine, whole}, comm);
      }
      require(error_text([&] { allgather(mine, comm, rows, 3); }).starts_with("[collective] blocks along dimension 3"),
              "[test] axis");
    });
}

TEST_CASE("gradient: an objective that every rank computes from allreduced values only is warned of") {
  const auto warnings = [](const std::function<Tensor(const Tensor& x, const Tensor& sum_of_x, const Communicator&)>& objective) {
    detail::take_warnings();
    on_ranks(2, [&](const Communicator& comm) {
      const auto x = full({4}, comm.rank() + 1, DType::float64);
      Tape tape;
      tape.gradient(objective(x, allreduce(x, comm), comm), {x});
    });
    return detail::take_warnings().size();
  };
  const auto three = constant(full({4}, 3, DType::float64)), own = constant(arange(4, DType::float64));
  CHECK(warnings([&](auto&, auto& y, auto&) { return mean(square(y - three)); }) == 1);
  CHECK(warnings([](auto&, auto& y, auto&) { return sum(square(y)) - 1; }) == 1);
  CHECK(warnings([](auto&, auto& y, auto&) { return sum(square(y / 2)); }) == 1);  // a mean over the ranks, in the function
  CHECK(warnings([](auto&, auto& y, auto& comm) { return mean(square(y)) / comm.size(); }) == 0);  // a partial sum
  CHECK(warnings([](auto&, auto& y, auto&) { return sum(square(y)) * 0.5; }) == 0);
  CHECK(warnings([](auto& x, auto& y, auto&) { return sum(square(y - x)); }) == 0);
  CHECK(warnings([&](auto&, auto& y, auto&) { return sum(square(y - own)); }) == 0);  // may be data of this rank
  CHECK(warnings([](auto&, auto& y, auto& comm) { return sum(slice(y, 0, 2 * comm.rank(), 2 * comm.rank() + 2)); }) == 0);
  CHECK(warnings([](auto&, auto& y, auto& comm) { return comm.rank() == 0 ? sum(square(y)) : Tensor(); }) == 0);
}
