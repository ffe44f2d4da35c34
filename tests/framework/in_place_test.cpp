// In-place computation: exchanges that write received halos around the input, and adjoints that overwrite a cotangent with no
// other owner. Each must give the result of the copying version and must not change data that others may read.

#include <doctest/doctest.h>

#include "comm/halos/exchange.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr std::int64_t planes = 11, width = 5;

// Blocks of [1, planes, width] with `halo` planes of each neighbour.
struct Slabs {
  BoxPlanPtr plan;
  Box have, need;
  Slabs(const Communicator& comm, std::int64_t halo) {
    auto boxes = std::make_shared<BoxPlan>();
    const auto cuts = balanced_cuts(planes, comm.size());
    for (std::size_t r = 0; r + 1 < cuts.size(); ++r) {
      boxes->have.push_back({{0, cuts[r], 0}, {1, cuts[r + 1], width}});
      boxes->need.push_back(
          {{0, std::max<std::int64_t>(0, cuts[r] - halo), 0}, {1, std::min(planes, cuts[r + 1] + halo), width}});
    }
    have = boxes->have[static_cast<std::size_t>(comm.rank())], need = boxes->need[static_cast<std::size_t>(comm.rank())];
    plan = std::move(boxes);
  }
};

const Tensor& whole() {
  static const Tensor x = global_tensor({1, planes, width}, 4);
  return x;
}
Tensor cut(const Box& box) {
  Untaped scope;
  return slice(whole(), box.begin, box.end);
}
// The same elements from an op, with room for one more plane at each end.
Tensor with_room(const Tensor& x) {
  const HaloRoom room(1);
  return x * 1.0;
}
void require_equal(const char* what, const Tensor& a, const Tensor& b) {
  require(a.to_vector() == b.to_vector(), "[test] {} differ", what);
}

}  // namespace

TEST_CASE("in place: the first exchange fills it, later and wider ones copy") {
  for (const int ranks : {2, 3, 5})
    check_on_ranks(ranks, "exchange", [](const Communicator& comm) {
      const Slabs one(comm, 1), two(comm, 2);
      const auto x = with_room(cut(one.have));
      const auto wide = exchange(x, comm, two.plan);
      require(wide.storage() != x.storage(), "[test] two planes have no room");
      const auto first = exchange(x, comm, one.plan), second = exchange(x, comm, one.plan);
      require(first.storage() == x.storage(), "[test] one plane has room");
      require(second.storage() != x.storage(), "[test] the room was taken");
      const auto block = slice(x, 1, 0, 1);  // shares the storage of x; the elements around it are those of x
      require_equal("wide halos", wide, cut(two.need));
      require_equal("halos in place", first, cut(one.need));
      require_equal("copied halos", second, cut(one.need));
      require_equal("the input and itself", x, cut(one.have));
      require_equal("a block and itself", block, slice(cut(one.have), 1, 0, 1));
      const auto plain = cut(one.have) + 0.0;
      require(exchange(plain, comm, one.plan).storage() != plain.storage(), "[test] there is no room without asking");
    });
}

TEST_CASE("in place: a cotangent is added to in place only where nobody holds it") {
  for (const int ranks : {2, 4})
    check_on_ranks(ranks, "adjoint", [](const Communicator& comm) {
      const Slabs slabs(comm, 1);
      const auto x = cut(slabs.have).as_variable();
      const auto u = random_uniform(slabs.need.extents(), Philox{.key = 9, .stream = static_cast<std::uint64_t>(comm.rank())}, -1,
                                    1, DType::float64);
      const auto before = u.to_vector();
      const auto held = [&] {
        Tape tape;
        const auto y = exchange(x, comm, slabs.plan);
        return tape.vjp({y}, {u}, {x})[0];
      }();
      require(u.to_vector() == before, "[test] the caller's cotangent was changed");
      require(held.storage() != u.storage(), "[test] the caller's cotangent was taken");
      const auto given_up = [&] {
        Tape tape;
        return tape.gradient(sum(exchange(x, comm, slabs.plan) * constant(u)), {x})[0];
      }();
      require_equal("cotangents", held, given_up);
      require(given_up.storage()->bytes() > given_up.bytes(), "[test] no cotangent was added to in place");

      // The memory of a caller's array belongs to the caller even if no tensor refers to it any more.
      std::vector<double> memory = before;
      const auto direct = ops::Exchange{comm, std::make_shared<const RankBoxes>(boxes_of(*slabs.plan, comm.rank()))}.vjp(
          Replay({}, {}, {}), std::vector<Tensor>{Tensor::over(memory.data(), slabs.need.extents(), DType::float64)})[0];
      require(memory == before, "[test] the caller's memory was changed");
      require_equal("cotangents", held, direct);
    });
}

TEST_CASE("in place: LeakyReLU's adjoint overwrites only what nobody holds") {
  const auto x = global_tensor({1000}, 1).as_variable(), u = global_tensor({1000}, 2);
  const auto before = u.to_vector();
  const auto through_held = [&] {
    Tape tape;
    const auto y = leaky_relu(x, 0.25);
    return tape.vjp({y}, {u}, {x})[0];
  }();
  CHECK(u.to_vector() == before);
  // One cotangent has two uses: the first must not change it for the second.
  const auto v = global_tensor({1000}, 3).as_variable();
  Tape tape;
  const auto gradients = tape.gradient(sum((leaky_relu(x, 0.25) + leaky_relu(v, 0.5) + v) * constant(u)), {x, v});
  const auto xs = x.to_vector(), vs = v.to_vector();
  for (std::size_t i = 0; i < before.size(); ++i) {
    CHECK(gradients[0].to_vector()[i] == (xs[i] > 0 ? 1 : 0.25) * before[i]);
    CHECK(gradients[1].to_vector()[i] == doctest::Approx((vs[i] > 0 ? 2 : 1.5) * before[i]).epsilon(1e-15));
    CHECK(through_held.to_vector()[i] == gradients[0].to_vector()[i]);
  }
}
