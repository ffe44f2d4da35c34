// The traffic of products with split channels, forward and backward, equals the formula of their scheme, also for uneven blocks.

#include <doctest/doctest.h>

#include <functional>
#include <ostream>

#include "comm/distributed/distributed.h"
#include "framework/engine/tape.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"
#include "tests/support/traffic.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// Elements sent by all ranks of a grid for y = f(x, w) and its gradients.
struct Sent {
  std::int64_t messages, gathered, scattered, reduced;
  bool operator==(const Sent&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Sent& s) {
  return out << "messages " << s.messages << ", gathered " << s.gathered << ", scattered " << s.scattered << ", reduced "
             << s.reduced;
}
using Function = std::function<Tensor(const Tensors&)>;
using LayoutOf = std::function<std::vector<LayoutPtr>(const GridPtr&)>;

Sent sent(const GridExtents& extents, const std::vector<Shape>& shapes, const LayoutOf& layouts_of, const Function& f) {
  const int ranks = ranks_of(extents);
  Traffic traffic;
  check_on_ranks(ranks, "traffic", [&](const Communicator& bare) {
    const auto comm = counted(bare, traffic);
    const auto grid = make_grid(comm, extents);
    const auto layouts = layouts_of(grid);
    Tensors in;
    for (std::size_t i = 0; i < shapes.size(); ++i) in.push_back(part_of(global_tensor(shapes[i], i + 1), layouts[i]));
    Tape tape;
    const auto y = f(in);
    tape.vjp({y}, {global_tensor(y.layout()->global, 9, y.layout())}, in);
  });
  CHECK(traffic.other == 0);
  return {traffic.messages, traffic.gathered, traffic.scattered, traffic.reduced};
}

}  // namespace

TEST_CASE("channels: what a convolution sends is what the formula of its scheme says, for uneven blocks, too") {
  const Shape x{2, 4, 3, 3, 7}, w{6, 3, 3, 3, 7}, y{2, 4, 3, 3, 6}, grouped{6, 3, 3, 3, 1};
  const auto conv_of = [](std::int64_t groups, SplitOutputs outputs) {
    return [=](const Tensors& t) { return conv(t[0], t[1], {.padding = 1, .groups = groups}, outputs); };
  };
  for (const int p : {2, 4, 5}) {
    CAPTURE(p);
    const GridExtents extents{.channel = p};
    const auto split = [&](int of_x, int of_w, const SplitOutputs& outputs = {}) {
      const auto layouts = [&](const GridPtr& grid) {
        return std::vector{split_layout(grid, x, {-1, -1, -1, -1, of_x}), split_layout(grid, w, {-1, -1, -1, -1, of_w})};
      };
      return sent(extents, {x, w}, layouts, conv_of(1, outputs));
    };
    const auto nx = x.elements() * (p - 1), ny = y.elements() * (p - 1), nw = w.elements() * (p - 1);
    CHECK(split(-1, 0) == Sent{0, 0, 0, 2 * nx});           // filters: the cotangent of x is summed over ranks
    CHECK(split(4, 0) == Sent{0, nx, nx, 0});               // x gathered, its cotangent scattered
    CHECK(split(4, 4) == Sent{0, 0, 0, 2 * ny});            // partial sums
    CHECK(split(4, 4, {.axis = 4}) == Sent{0, ny, ny, 0});  // scattered, their cotangent gathered
    CHECK(split(-1, 4) == Sent{nx, 0, 0, 2 * ny});          // x split without a message, its cotangent gathered
    CHECK(split(4, -1) == Sent{nw, 0, 0, 2 * ny});          // w likewise
    CHECK(split(-1, -1, {.axis = 4}) == Sent{nw, 0, 0, 2 * nx});
    CHECK(split(-1, -1) == Sent{0, 0, 0, 0});
    const Shape groups_of_one{2, 4, 3, 3, 6};
    const auto layouts = [&](const GridPtr& grid) {
      return std::vector{split_layout(grid, groups_of_one, {-1, -1, -1, -1, 4}),
                         split_layout(grid, grouped, {-1, -1, -1, -1, 0})};
    };
    CHECK(sent(extents, {groups_of_one, grouped}, layouts, conv_of(6, {})) == Sent{0, 0, 0, 0});
  }
  // Combined with splits of space and samples: halos of a rank's own channels, two planes between two ranks, both ways; w's
  // blocks are reduced over the four ranks that have the same block.
  const auto layouts = [&](const GridPtr& grid) {
    return std::vector{activation_layout(grid, x), split_layout(grid, w, {-1, -1, -1, -1, 4})};
  };
  const auto plane = x.elements() / 4;
  CHECK(sent({.sample = 2, .depth = 2, .channel = 3}, {x, w}, layouts, conv_of(1, {})) ==
        Sent{2 * 2 * plane, 0, 0, 2 * y.elements() * 2 + 2 * w.elements() * 3});
}

TEST_CASE("channels: what the product of models and batches sends for a network of linear layers") {
  // Gholami et al., equation 8; the gather's adjoint is one third of it. On Pr x Pc ranks every layer but the first gathers its
  // inputs, for a part of the batch, among Pr ranks and scatters their cotangents; weights are reduced among Pc.
  const std::vector<std::int64_t> d{10, 13, 9, 4};
  const std::int64_t batch = 7;
  for (const auto& [pr, pc] : std::vector<std::pair<int, int>>{{4, 1}, {2, 2}, {3, 2}, {2, 3}, {4, 2}, {2, 4}, {8, 1}, {1, 6}}) {
    CAPTURE(pr);
    CAPTURE(pc);
    std::vector<Shape> shapes{{batch, d[0]}};
    std::int64_t weights = 0, features = 0;
    for (std::size_t i = 1; i < d.size(); ++i) {
      shapes.push_back({d[i], d[i - 1]});
      weights += d[i] * d[i - 1];
      if (i + 1 < d.size()) features += d[i];
    }
    const auto layouts = [&](const GridPtr& grid) {
      std::vector<LayoutPtr> result;
      const auto split = [&](const Shape& shape, int sample, int channel) {
        std::vector<int> dimensions{sample, -1, -1, -1, channel};
        dimensions.resize(static_cast<std::size_t>(grid->axes()));
        return split_layout(grid, shape, dimensions);
      };
      for (const auto& shape : shapes) result.push_back(result.empty() ? split(shape, 0, -1) : split(shape, -1, 0));
      return result;
    };
    const auto network = [](const Tensors& t) {
      auto y = constant(t[0]);
      for (std::size_t i = 1; i < t.size(); ++i) y = linear(y, t[i], {}, Activation::leaky_relu(0.1));
      return y;
    };
    const auto gathered = batch * features * (pr - 1);
    CHECK(sent({.sample = pc, .channel = pr}, shapes, layouts, network) == Sent{0, gathered, gathered, 2 * weights * (pc - 1)});
  }
}
