// Redistribution between any two layouts, and the meaning of ordinary ops on distributed tensors: blocks, replicated values and
// partial sums; wrong uses are refused by name.

#include <functional>
#include <string>

#include "comm/distributed/distributed.h"
#include "comm/distributed/invariant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

GridPtr random_grid(const Communicator& comm, Dice& dice) {
  // Random factors whose product is the number of ranks.
  std::vector<int> extents;
  std::vector<std::string> names;
  int rest = comm.size();
  const auto axes = dice(1, 3);
  for (std::int64_t a = 0; a < axes; ++a) {
    int extent = static_cast<int>(dice(1, rest));
    while (rest % extent != 0) --extent;
    if (a + 1 == axes) extent = rest;
    extents.push_back(extent), names.push_back(fmt::format("axis{}", a));
    rest /= extent;
  }
  return std::make_shared<Grid>(comm, names, extents);
}

LayoutPtr random_layout(const GridPtr& grid, const Shape& global, Dice& dice, bool partial) {
  std::vector<int> dimensions;
  for (int a = 0; a < grid->axes(); ++a) {
    int d = static_cast<int>(dice(-1, global.rank() - 1));
    if (std::find(dimensions.begin(), dimensions.end(), d) != dimensions.end()) d = -1;
    dimensions.push_back(d);
  }
  auto layout = split_layout(grid, global, dimensions);
  if (dice(0, 1)) layout = with_random_cuts(layout, dice);
  Layout result = *layout;
  for (auto& axis : result.axes)
    if (partial && axis.placement == Placement::replicated && dice(0, 1)) axis.placement = Placement::partial;
  return std::make_shared<Layout>(std::move(result));
}

// This rank's part of a global tensor, as a partial sum.
Tensor shared_part_of(const Tensor& global, const LayoutPtr& layout) {
  double factor = 1;
  const auto at = layout->grid->coordinates(layout->grid->rank);
  for (std::size_t a = 0; a < at.size(); ++a) {
    const int extent = layout->grid->extents[a];
    if (layout->axes[a].placement == Placement::partial) factor *= (at[a] + 1) / (0.5 * extent * (extent + 1));
  }
  return part_of((global * factor).as_variable(), layout);
}

void expect(const char* start, const std::function<void()>& body) {
  const auto text = error_text(body);
  require(text.starts_with(start), "[test] '{}' instead of '{}'", text, start);
}

Tensor filled(const LayoutPtr& layout, double value = 1) {
  return full(layout->box().extents(), value, DType::float64).with_layout(layout);
}

LayoutPtr with_share(const LayoutPtr& layout, std::size_t axis) {
  Layout result = *layout;
  result.axes[axis] = {Placement::partial, -1, {}};
  return std::make_shared<Layout>(std::move(result));
}

}  // namespace

TEST_CASE("redistribution: any layout to any other") {
  for (const int size : {1, 2, 3, 4, 6, 7, 8})
    check_on_ranks(size, "redistribute", [](const Communicator& comm) {
      for (std::uint64_t seed = 1; seed <= 150; ++seed) {
        Dice dice(seed * 10 + static_cast<std::uint64_t>(comm.size()));
        Shape global;
        for (auto rank = dice(0, 4); rank > 0; --rank) global.push_back(dice(1, 6));
        const auto grid = random_grid(comm, dice), other = dice(0, 2) ? grid : random_grid(comm, dice);
        const auto from = random_layout(grid, global, dice, true), to = random_layout(other, global, dice, false);
        const auto what = fmt::format("{} to {}", to_string(*from), to_string(*to));
        const auto whole = global_tensor(global, seed);
        const auto x = shared_part_of(whole, from);
        const auto y = redistribute(x, to);
        require(y.layout() && *y.layout() == *to, "[test] {}: the result is {}", what, y);
        require_close(what, y, part_of(whole, to));
        require_adjoint(what, [&](const Tensors& in) { return Tensors{redistribute(in[0], to)}; }, {x}, comm, {.seed = seed});
        require_close("gather_all", gather_all(x), whole);
      }
    });
}

TEST_CASE("redistribution: of integers, and of the same layout") {
  check_on_ranks(4, "redistribute", [](const Communicator& comm) {
    const auto grid = make_grid(comm, {.sample = 4});
    const auto split = split_layout(grid, {6, 2}, {0, -1, -1, -1}),
               across = with_cuts(split_layout(grid, {6, 2}, {1, -1, -1, -1}), 1, {0, 0, 2, 2, 2});
    const auto labels = reshape(arange(12), Shape{6, 2});
    const auto x = part_of(labels, split);
    require(redistribute(x, split_layout(grid, {6, 2}, {0, -1, -1, -1})).id() == x.id(), "[test] an equal layout moves nothing");
    Tape tape;
    require_close("labels", redistribute(x, across), part_of(labels, across), 0);
    require(tape.entries().empty(), "[test] integers were recorded");
  });
}

TEST_CASE("redistribution: what is wrong is refused by name") {
  check_on_ranks(2, "refusals", [](const Communicator& comm) {
    const auto grid = make_grid(comm, {.depth = 2}), again = make_grid(comm, {.height = 2});
    const auto same = replicated_layout(grid, {4}), split = split_layout(grid, {4}, {-1, 0, -1, -1});
    const auto share = with_share(same, 1), other_share = with_share(replicated_layout(again, {4}), 2);
    expect("[redistribute] the tensor and the target need layouts", [&] { redistribute(ones({4}), same); });
    expect("[redistribute] the tensor and the target need layouts", [&] { redistribute(filled(same), nullptr); });
    for (const auto& make : {&replicated_layout, &activation_layout, &input_layout})
      expect("[layout] a layout needs a process grid", [&] { make(nullptr, {1, 4, 4, 4, 1}); });
    expect("[layout] a layout needs a process grid", [&] { split_layout(nullptr, {4}, {}); });
    expect("[layout] only a layout has cuts", [&] { with_cuts(nullptr, 0, {0, 4}); });
    expect("[redistribute] global shapes differ", [&] { redistribute(filled(same), replicated_layout(grid, {5})); });
    expect("[redistribute] only once() makes a partial sum", [&] { redistribute(filled(same), share); });
    expect("[redistribute] only once() makes a partial sum", [&] { redistribute(filled(split), share); });
    expect("[redistribute] only once() makes a partial sum", [&] { redistribute(filled(same), other_share); });
    expect("[redistribute] only once() makes a partial sum", [&] { redistribute(filled(share), other_share); });
    const int self[] = {comm.rank()};
    expect("[redistribute] layouts over 2 and 1 ranks",
           [&] { redistribute(filled(same), replicated_layout(make_grid(comm.subgroup(self), {}), {4})); });
    expect("[layout] cuts", [&] { with_cuts(split, 0, {0, 5, 4}); });
    expect("[layout] dimension 0 is not split", [&] { with_cuts(same, 0, {0, 2, 4}); });
    expect("[layout] the local part is", [&] { ones({3}).with_layout(split); });
  });
}

TEST_CASE("layouts: sums over split dimensions are partial, and their adjoints") {
  for (const int size : {1, 2, 4, 6})
    check_on_ranks(size, "sums", [](const Communicator& comm) {
      for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        Dice dice(seed);
        const Shape global{dice(1, 5), dice(1, 5), dice(1, 5)};
        const auto layout = random_layout(random_grid(comm, dice), global, dice, false);
        const auto whole = global_tensor(global, seed);
        const std::vector<int> axes{static_cast<int>(dice(0, 2))};
        const auto x = part_of(whole, layout);
        require_close("sum", gather_all(sum(x, axes)), sum(whole, axes));
        require_close("mean", gather_all(mean(x)), mean(whole));
        require(std::abs(total(mean(x), comm) - mean(whole).item()) < 1e-14, "[test] total of a mean");
        require_adjoint("sum", [&](const Tensors& in) { return Tensors{sum(in[0], axes)}; }, {x}, comm, {.seed = seed});
        require_adjoint("mean", [&](const Tensors& in) { return Tensors{mean(in[0] * 2)}; }, {x}, comm, {.seed = seed});
        // The same, gathered.
        require_adjoint("gather_all(sum)", [&](const Tensors& in) { return Tensors{gather_all(sum(in[0], axes))}; }, {x}, comm,
                        {.seed = seed});
        require_close("permute", gather_all(permute(x, {2, 0, 1})), permute(whole, {2, 0, 1}));
      }
    });
}

TEST_CASE("layouts: the head behind global pooling on samples x depth counts exactly once") {
  check_on_ranks(4, "2 x 2", [](const Communicator& comm) {
    const auto grid = make_grid(comm, {.sample = 2, .depth = 2});
    const auto layout = with_cuts(with_cuts(activation_layout(grid, {5, 7, 3, 2, 2}), 1, {0, 2, 7}), 0, {0, 4, 5});
    const auto labels = with_cuts(split_layout(grid, {5, 4}, {0, -1, -1, -1}), 0, {0, 4, 5});
    const auto w = global_tensor({3, 2, 2, 2, 2}, 1), v = global_tensor({4, 3}, 2), c = global_tensor({4}, 3);
    const auto loss = [&](const Tensor& x, const Tensor& t) {
      const auto features =
          tanh(global_avg_pool(conv(x, w, {.padding = Padding::sides(1, 0), .activation = Activation::leaky_relu(0.2)})));
      return mse(linear(features, v, c), t);
    };
    Tensors expected;
    double value = 0;
    {
      Tape tape;
      const auto whole = loss(global_tensor(layout->global, 4), global_tensor({5, 4}, 5));
      value = whole.item();
      expected = tape.gradient(whole, {w, v, c});
    }
    Tape tape;
    const auto x = constant(global_tensor(layout->global, 4, layout)), t = constant(global_tensor({5, 4}, 5, labels));
    const auto share = loss(x, t);
    require(share.layout()->axes[0].placement == Placement::partial && share.layout()->axes[1].placement == Placement::replicated,
            "[test] {}", share);
    require(std::abs(total(share, comm) - value) < 1e-14, "[test] total {} instead of {}", total(share, comm), value);
    // Replicated over the axes along which the inputs vary, and over no others.
    for (const auto& entry : tape.entries()) require(entry.name != "allreduce", "[test] a plain allreduce");
    const auto g = tape.gradient(share, {w, v, c});
    for (std::size_t i = 0; i < g.size(); ++i) require_close(fmt::format("parameter {}", i), g[i], expected[i]);
  });
}

TEST_CASE("layouts: a penalty joins a partial sum by once()") {
  for (const int size : {1, 2, 4, 6})
    check_on_ranks(size, "once", [](const Communicator& comm) {
      const auto grid =
          make_grid(comm, {.sample = comm.size() % 2 ? 1 : 2, .depth = comm.size() % 2 ? comm.size() : comm.size() / 2});
      const auto layout = split_layout(grid, {5, 7}, {0, 1, -1, -1});
      const auto whole = global_tensor({5, 7}, 1), w = global_tensor({3}, 2);
      Tape tape;
      const auto x = global_tensor({5, 7}, 1, layout);
      const auto share = mean(square(x));
      const auto loss = share + once(0.5 * dot(w, w), share);
      require(std::abs(total(loss, comm) - mean(square(whole)).item() - 0.5 * dot(w, w).item()) < 1e-13, "[test] total");
      const auto g = tape.gradient(loss, {x, w});
      require_close("x", g[0], part_of(whole * (2.0 / 35), layout));
      require_close("w", g[1], w);
      if (comm.size() > 1) expect("[add]", [&] { share + 0.5 * dot(w, w); });
      if (comm.size() > 1) expect("[affine] adds a constant to a partial sum", [&] { share + 1.0; });
    });
}

TEST_CASE("layouts: what is wrong on a distributed tensor is refused by name") {
  check_on_ranks(2, "refusals", [](const Communicator& comm) {
    const auto grid = make_grid(comm, {.sample = 2}), twin = make_grid(comm, {.sample = 2});
    const auto rows = split_layout(grid, {4, 6}, {0, -1, -1, -1}), columns = split_layout(grid, {4, 6}, {1, -1, -1, -1});
    const auto uneven = with_cuts(rows, 0, {0, 1, 4});
    const auto x = filled(rows), y = filled(columns), s = sum(x), same = filled(replicated_layout(grid, {}));
    expect("[max/min] over dimension 0, which is split", [&] { max(x, {0}); });
    expect("[max/min] over dimension 0, which is split", [&] { min(x); });
    expect("[argmax] over dimension 0, which is split", [&] { argmax(x, 0); });
    expect("[max/min] of a partial sum", [&] { max(sum(x, {0}), {0}); });
    expect("[log_softmax]", [&] { log_softmax(y, 1); });
    expect("[softmax]", [&] { softmax(y); });
    expect("[multiply] is a product of partial sums", [&] { s* s; });
    expect("[divide] divides by a partial sum", [&] { same / s; });
    expect("[add] adds a replicated value to a partial sum", [&] { s + same; });
    expect("[subtract] adds a replicated value", [&] { same - s; });
    expect("[exp] of a partial sum", [&] { exp(s); });
    expect("[square] of a partial sum", [&] { square(s); });
    expect("[add] operands are laid out differently", [&] { x + y; });
    expect("[add]", [&] { x + filled(uneven); });
    expect("[add] operands are on different process grids", [&] { x + filled(split_layout(twin, {4, 6}, {0, -1, -1, -1})); });
    expect("[add] mixes a distributed tensor with a local one", [&] { x + ones({2, 6}, DType::float64); });
    expect("[multiply] shapes do not fit", [&] { x* filled(replicated_layout(grid, {3, 6})); });
    expect("[slice] across dimension 0, which is split", [&] { slice(x, 0, 0, 1); });
    expect("[pad] across dimension 0, which is split", [&] { pad(x, {1, 0}, {0, 0}); });
    expect("[flip] across dimension 0, which is split", [&] { flip(x, {0}); });
    expect("[concatenate]", [&] { concatenate({x, x}, 0); });
    expect("[reshape] merges or cuts dimension 1, which is split", [&] { reshape(y, Shape{12}); });
    expect("[matmul]", [&] { matmul(x, transpose(y)); });
    expect("[allreduce] is not defined on a distributed tensor", [&] { allreduce(x, comm); });
    expect("[broadcast_to] is not defined", [&] { broadcast_to(x, Shape{3, 2, 6}); });
    expect("[once] needs a partial sum", [&] { once(same, x); });
    expect("[once] the partial sum has no layout", [&] { once(same, ones({})); });
    // Right uses: linear functions keep partial sums, and a partial sum may be scaled by a replicated value.
    require((s * 2.0).layout()->axes[0].placement == Placement::partial, "[test] scaled partial sum");
    require((s + s).layout()->axes[0].placement == Placement::partial, "[test] sum of partial sums");
    require((s * same).layout()->axes[0].placement == Placement::partial, "[test] product with a replicated value");
    require((s / same).layout()->axes[0].placement == Placement::partial, "[test] quotient by a replicated value");
    require(exp(x).layout()->axes[0].placement == Placement::split, "[test] exp of a block");
    require(max(x, {1}).layout()->axes[0].dimension == 0, "[test] maximum of a row");
    require(reshape(x, Shape{2, 2, 3}).layout()->global == Shape{4, 2, 3}, "[test] reshape behind the split");
  });
}

TEST_CASE("layouts: a computed value that is replicated and asked for hands its cotangent on") {
  for (const int size : {1, 2, 3})
    check_on_ranks(size, "asked for on the way", [](const Communicator& comm) {
      const auto grid = make_grid(comm, {.depth = comm.size()});
      const Shape shape{1, 6, 1, 1, 2};
      const auto x = global_tensor(shape, 3, activation_layout(grid, shape));
      const auto v = global_tensor({2}, 4).with_layout(replicated_layout(grid, {2})).as_variable();
      const auto gradients = [&](const std::function<Tensors(const Tensor&, const Tensor&)>& of) {
        Tape tape;
        const auto w = v * 2;
        const auto share = sum(square(x * w)) + once(sum(w), comm).with_layout(sum(square(x)).layout());
        return tape.gradient(share, of(v, w));
      };
      const auto alone = gradients([](const Tensor& a, const Tensor&) { return Tensors{a}; });
      const auto both = gradients([](const Tensor& a, const Tensor& b) { return Tensors{b, a, b, a}; });
      require_close("v", both[1].without_layout(), alone[0].without_layout());
      require_close("w", (both[0] * 2).without_layout(), alone[0].without_layout());
      require_close("w again", both[2].without_layout(), both[0].without_layout());
      require_close("v again", both[3].without_layout(), both[1].without_layout());
      Tape tape;
      const auto twice = tape.gradient(sum(square(x * v)), {v, v});
      require_close("a parameter asked for twice", twice[0].without_layout(), twice[1].without_layout());
    });
}
