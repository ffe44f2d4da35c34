// Messages of windows and their order: blocks are convolved during the halo exchange, recomputation keeps received halos, and a
// convolution and its pooling share one exchange.

#include <doctest/doctest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/distributed/distributed.h"
#include "comm/halos/overlapped.h"
#include "framework/engine/tape.h"
#include "ops/elementwise/elementwise.h"
#include "ops/recompute.h"
#include "tests/comm/distributed/window_cases.h"
#include "tests/support/all_tests.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::testing::windows;

namespace {

int comm_rank_of(const Tensor& x) { return x.layout() ? x.layout()->grid->rank : -1; }

}  // namespace

TEST_CASE("windows: what a function that is computed again received is kept, not sent again") {
  const auto once = conv_row("", 3, 1, 1);
  const auto twice = [&](const Tensors& in) { return once.run({once.run(in), in[3], in[4]}); };
  const Row row{"two convolutions, computed again", {}, 4, {{6, 3, 3, 3, 4}, {6}, {6, 3, 3, 3, 6}, {6}}, [&](const Tensors& in) {
                  return recompute([=](const Tensor& x) { return twice({x, in[1], in[2], in[3], in[4]}); }, in[0]);
                }};
  const Shape shape{2, 16, 18, 6, 4};
  for (const auto overlap : {Overlap::never, Overlap::always})
    for (const auto& cuts : std::vector<std::vector<int>>{{2}, {2, 2}, {2, 2, 2}}) {
      Traffic plain, again;
      int ranks = 1;
      for (const int parts : cuts) ranks *= parts;
      for (auto* traffic : {&plain, &again})
        on_ranks(ranks, [&](const Communicator& bare) {
          const Communicator comm(std::make_shared<Counting>(bare.shared_transport(), *traffic));
          const auto grid = make_grid(comm, extents_of(cuts), overlap);
          Tensors in{global_tensor(shape, 1, activation_layout(grid, shape))}, whole_in{global_tensor(shape, 1)};
          for (std::size_t i = 0; i < row.parameters.size(); ++i) {
            whole_in.push_back(global_tensor(row.parameters[i], 2 + i));
            in.push_back(whole_in.back().with_layout(replicated_layout(grid, row.parameters[i])));
          }
          const auto run = [&](const Tensors& x) { return traffic == &again ? row.run(x) : twice(x); };
          const auto on = [&](const Tensors& x, const LayoutPtr& layout) {
            Tape tape;
            const auto y = run(x);
            return tape.vjp({y}, {global_tensor({2, 16, 18, 6, 6}, 9, layout)}, x);
          };
          const auto mine = on(in, activation_layout(grid, {2, 16, 18, 6, 6})), whole = on(whole_in, nullptr);
          require_close("gradient", mine[0], part_of(whole[0], in[0].layout()), 1e-12);
          for (std::size_t i = 1; i < in.size(); ++i) require_close("parameter", mine[i], whole[i], 1e-12);
        });
      CHECK(plain.bytes > 0);
      CHECK(again.bytes == plain.bytes);
    }
}

TEST_CASE("windows: forward and backward, the block is convolved while halos travel") {
  on_ranks(2, [](const Communicator& comm) {
    const auto grid = make_grid(comm, {.depth = 2}, Overlap::always);
    const Shape shape{1, 8, 6, 6, 3};
    const auto x = global_tensor(shape, 1, activation_layout(grid, shape));
    const auto w = global_tensor({4, 3, 3, 3, 3}, 2).with_layout(replicated_layout(grid, {4, 3, 3, 3, 3}));
    std::string forward, backward;
    const auto names = [](std::span<const Tape::Entry> entries) {
      std::string line;
      for (const auto& entry : entries) line += " " + std::string(entry.name);
      return line + " ";
    };
    Tape outer;
    {
      Tape tape;
      const auto y = conv(x, w, {.padding = 1});
      forward = names(tape.entries());
      const auto before = outer.entries().size();
      (void)tape.vjp({y}, {global_tensor(y.layout()->global, 3, y.layout())}, {x, w});
      backward = names(std::span(outer.entries()).subspan(before));
    }
    // The order of the calls shows what runs between a start and its wait.
    const auto in_order = [](const std::string& line, const std::vector<std::string>& parts) {
      std::size_t at = 0;
      for (const auto& part : parts) {
        at = line.find(" " + part + " ", at);
        if (at == std::string::npos) return false;
      }
      return true;
    };
    require(in_order(forward, {"ineighbor_alltoall", "conv", "wait", "conv", "add_boxes"}), "[test] forward:{}", forward);
    require(in_order(backward, {"ineighbor_alltoall", "conv_weight", "conv_data", "wait", "add_boxes"}), "[test] backward:{}",
            backward);
  });
}

TEST_CASE("windows: the plan of a convolution follows from the layouts") {
  on_ranks(4, [](const Communicator& comm) {
    const Shape shape{1, 8, 4, 4, 4}, kernel{6, 3, 3, 3, 4};
    const ConvAttributes padded{.padding = 1, .activation = Activation::relu};
    for (const auto overlap : {Overlap::never, Overlap::always}) {
      const auto grid = make_grid(comm, {.depth = 2, .channel = 2}, overlap);
      const auto x = global_tensor(shape, 1, activation_layout(grid, shape));
      const auto same = global_tensor(kernel, 2);
      const auto filters = global_tensor(kernel, 2, split_layout(grid, kernel, {-1, -1, -1, -1, 0}));
      const auto plan = spatial::plan_conv(x, same, {}, padded, {});
      require(plan.product.sums && plan.product.gathered < 0 && plan.product.x->global == Shape{1, 8, 4, 4, 2},
              "[test] x's channels are split: partial sums");
      require(plan.product.weight == Shape{6, 3, 3, 3, 2} && plan.window.moves && !plan.pool, "[test] each rank's part");
      require(plan.halos.has_value() == (overlap == Overlap::always), "[test] overlap");
      if (plan.halos)
        require(plan.halos->slabs.size() == 1 && plan.halos->received_rows == Rows{4 * 4 * 2}, "[test] one plane of a neighbour");
      const auto gathers = spatial::plan_conv(x, filters, {}, padded, {});
      require(!gathers.product.sums && gathers.product.gathered == 4 && gathers.product.weight == Shape{3, 3, 3, 3, 4},
              "[test] the weight's filters are split: x's channels are gathered");
    }
    const auto plain = spatial::plan_conv(zeros(shape), zeros(kernel), {}, padded, {});
    require(!plain.window.out && !plain.halos && plain.product.axes.empty(), "[test] a plain tensor moves nothing");
  });
}

TEST_CASE("windows: second derivatives of what overlaps") {
  on_ranks(4, [](const Communicator& comm) {
    const auto grid = make_grid(comm, {.depth = 2, .height = 2}, Overlap::always);
    const Shape shape{1, 9, 8, 4, 2}, kernel{3, 3, 3, 2, 2};
    const auto layout = activation_layout(grid, shape);
    const auto second = [&](const Tensor& x, const Tensor& w, const Tensor& u) {
      Tape outer;
      Tape tape;
      const auto y = conv(x, w, {.stride = {2, 1, 1}, .padding = 1, .activation = Activation::none});
      const auto first = tape.vjp({square(y)}, {ones_like(y)}, {x, w}, Record::yes);
      return outer.vjp({first[0]}, {u}, {x, w});
    };
    const auto x = global_tensor(shape, 1), w = global_tensor(kernel, 2), u = global_tensor(shape, 3);
    const auto whole = second(x, w, u);
    const auto mine = second(part_of(x, layout), w.with_layout(replicated_layout(grid, kernel)), part_of(u, layout));
    require_close("x", mine[0], part_of(whole[0], layout), 1e-11);
    require_close("w", mine[1], whole[1], 1e-11);
  });
}

TEST_CASE("windows: one exchange for a convolution and its pooling, where that moves less") {
  int merged = 0, number = 0;
  for (const std::int64_t channels : {1, 2, 24})
    for (const bool average : {true, false})
      for (const auto& pool : {PoolAttributes{.kernel = 3, .stride = 2, .padding = 1}, PoolAttributes{.kernel = 2, .stride = 2},
                               PoolAttributes{.kernel = 3, .stride = 1}}) {
        ++number;
        // Each split uses one of the two ways, and the other one with the next pooling.
        for (const auto& cuts : std::vector<std::vector<int>>{{2}, {4}, {3, 2}, {2, 2, 2}}) {
          ++number;
          for (const auto overlap : {Overlap::never, Overlap::always}) {
            if (!all_tests() && (overlap == Overlap::always) != (number % 2 == 0)) continue;
            const Row row{"convolution and pooling",
                          {},
                          channels,
                          {{24, 3, 3, 3, channels}, {24}},
                          [&](const Tensors& in) {
                            const ConvAttributes padded{.padding = 1};
                            const auto plan = spatial::plan_conv(in[0], in[1], in[2], padded, {}, &pool);
                            if (comm_rank_of(in[0]) == 0) merged += plan.pool.has_value();
                            const auto z = spatial::run_conv(plan, in[0], in[1], in[2]);
                            return average ? spatial::avg_pool(plan, z, pool, Activation::leaky_relu(0.1))
                                           : spatial::max_pool(plan, z, pool);
                          },
                          0,
                          false,
                          false};
            CHECK_NOTHROW(check_row(row, cuts, 2, 18, overlap));
          }
        }
      }
  CHECK(merged > 0);
}
