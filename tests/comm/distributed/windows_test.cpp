// Windows that other systems refuse or gather whole activations for, by name: on 2, 4 and 8 ranks, split along one dimension and
// two, batches of 1 and 3, even and uneven blocks. Values and gradients are those of one rank, and the bytes of all messages are
// exactly those of the halo formula: what a rank's outputs read, less what it has.

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <functional>

#include "comm/distributed/distributed.h"
#include "comm/distributed/upsample.h"
#include "comm/transport/forwarding.h"
#include "framework/engine/tape.h"
#include "ops/elementwise/elementwise.h"
#include "ops/recompute.h"
#include "ops/reduce/reduce.h"
#include "tests/support/all_tests.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// What all ranks send in messages, and the largest collective's elements.
struct Traffic {
  std::atomic<std::int64_t> bytes{0}, largest{0};
};

class Counting : public ForwardingTransport {
 public:
  Counting(std::shared_ptr<Transport> inner, Traffic& traffic) : ForwardingTransport(std::move(inner)), traffic_(traffic) {}

  void perform(const Collective& call) override { note(call), ForwardingTransport::perform(call); }
  Pending begin(const Collective& call) override { return note(call), ForwardingTransport::begin(call); }
  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    note(sends, type), ForwardingTransport::exchange(sends, receives, type);
  }
  Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return note(sends, type), ForwardingTransport::start_exchange(sends, receives, type);
  }
  Pending start_round(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return note(sends, type), ForwardingTransport::start_round(sends, receives, type);
  }

 protected:
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const override {
    return std::make_shared<Counting>(std::move(made), traffic_);
  }

 private:
  void note(std::span<const Message> sends, DType type) {
    for (const auto& message : sends) traffic_.bytes += message.count * size_of(type);
  }
  void note(const Collective& call) {
    auto elements = call.count;
    for (const auto count : call.counts) elements += count;
    auto before = traffic_.largest.load();
    while (before < elements && !traffic_.largest.compare_exchange_weak(before, elements)) {
    }
  }
  Traffic& traffic_;
};

// The inputs, first and last, that output o reads in spatial dimension i, of n; those outside are padding.
using Reads = std::function<std::pair<std::int64_t, std::int64_t>(std::size_t i, std::int64_t n, std::int64_t o)>;

std::int64_t ceil_of(std::int64_t a, std::int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }
std::int64_t floor_of(std::int64_t a, std::int64_t b) { return -ceil_of(-a, b); }

struct Window {
  std::int64_t kernel, stride, padding, dilation = 1;
  bool transposed = false;
  std::pair<std::int64_t, std::int64_t> reads(std::int64_t o) const {
    const auto reach = dilation * (kernel - 1);
    if (transposed) return {ceil_of(o + padding - reach, stride), floor_of(o + padding, stride)};
    return {o * stride - padding, o * stride - padding + reach};
  }
};

int comm_rank_of(const Tensor& x) { return x.layout() ? x.layout()->grid->rank : -1; }

struct Row {
  std::string name;
  Reads reads;  // none: nothing is exchanged
  std::int64_t channels;
  std::vector<Shape> parameters;
  std::function<Tensor(const Tensors&)> run;  // of x and the parameters
  std::int64_t planes_of_a_rank = 0;          // 0: 16 and 18 planes; else that many on each rank
  bool overlaps = false;                      // computes while halos travel, where the grid has Overlap::always
  bool counted = true;                        // bytes are those of `reads`
};

Reads same(const Window& w) {
  return [w](std::size_t, std::int64_t, std::int64_t o) { return w.reads(o); };
}
// To `factor` times as many places.
Row upsample_row(const char* name, const std::array<double, 3>& factors, Interpolation mode) {
  return {name,
          [=](std::size_t i, std::int64_t n, std::int64_t o) {
            const double m = std::floor(static_cast<double>(n) * factors[i]);
            const double at = mode == Interpolation::nearest ? static_cast<double>(o) * static_cast<double>(n) / m
                                                             : (static_cast<double>(o) + 0.5) * static_cast<double>(n) / m - 0.5;
            const auto low = static_cast<std::int64_t>(std::floor(std::max(0.0, at) + 1e-9));
            const bool exact = mode == Interpolation::nearest || at < 1e-9 || std::abs(at - std::round(at)) < 1e-9;
            return std::pair{low, std::min(n - 1, low + (exact ? 0 : 1))};
          },
          3,
          {},
          [=](const Tensors& in) { return upsample_by(in[0], factors, mode); }};
}

Row conv_row(const char* name, std::int64_t k, std::int64_t s, std::int64_t p, std::int64_t d = 1, std::int64_t groups = 1) {
  return {name,
          same({k, s, p, d}),
          4,
          {{6, k, k, k, 4 / groups}, {6}},
          [=](const Tensors& in) {
            return conv(in[0], in[1], in[2],
                        {.stride = s,
                         .dilation = d,
                         .padding_low = p,
                         .padding_high = p,
                         .groups = groups,
                         .activation = k == 4 ? Activation::leaky_relu(0.25) : Activation::none});
          },
          0,
          true};
}
Row transposed_row(const char* name, std::int64_t k, std::int64_t s, std::int64_t p, std::int64_t output_padding = 0) {
  return {name, same({k, s, p, 1, true}), 3, {{3, k, k, k, 5}, {5}}, [=](const Tensors& in) {
            return conv_transpose(in[0], in[1], in[2],
                                  {.stride = s, .padding_low = p, .padding_high = p, .output_padding = output_padding});
          }};
}

std::vector<Row> table() {
  const auto two_planes = [](Row row) {
    row.planes_of_a_rank = 2;
    return row;
  };
  const auto pool = [](std::int64_t k, std::int64_t s, std::int64_t p, bool ceil = false) {
    return PoolAttributes{.kernel = k, .stride = s, .padding_low = p, .padding_high = p, .ceil_mode = ceil};
  };
  const auto group = [](std::int64_t groups) {
    return [=](const Tensors& in) { return group_norm(in[0], in[1], in[2], {.groups = groups}); };
  };
  return {conv_row("k3 s2 p1", 3, 2, 1),
          conv_row("k4 s1 p1", 4, 1, 1),
          conv_row("k5 s3 p2", 5, 3, 2),
          conv_row("k2 s3 p0: a stride beyond the kernel", 2, 3, 0),
          two_planes(conv_row("k7 p3 on two planes a rank", 7, 1, 3)),
          conv_row("k3 p2 dilation 2", 3, 1, 2, 2),
          conv_row("k3 p1 grouped", 3, 1, 1, 1, 2),
          transposed_row("transposed k2 s2", 2, 2, 0),
          transposed_row("transposed k3 s2 p1", 3, 2, 1),
          transposed_row("transposed k4 s2 p1", 4, 2, 1),
          transposed_row("transposed k3 s2 p1, output padding 1", 3, 2, 1, 1),
          transposed_row("transposed k5 s3 p1, output padding 2", 5, 3, 1, 2),
          {"max pool k2 s2", same({2, 2, 0}), 3, {}, [=](const Tensors& in) { return max_pool(in[0], pool(2, 2, 0)); }},
          {"max pool k3 s2 p1", same({3, 2, 1}), 3, {}, [=](const Tensors& in) { return max_pool(in[0], pool(3, 2, 1)); }},
          {"max pool k3 s2 p1, ceil mode",
           same({3, 2, 1}),
           3,
           {},
           [=](const Tensors& in) { return max_pool(in[0], pool(3, 2, 1, true)); }},
          {"average pool k3 s2 p1", same({3, 2, 1}), 3, {}, [=](const Tensors& in) { return avg_pool(in[0], pool(3, 2, 1)); }},
          upsample_row("nearest, 2 times", {2, 2, 2}, Interpolation::nearest),
          upsample_row("trilinear, 2 times", {2, 2, 2}, Interpolation::linear),
          upsample_row("trilinear, 1.6, 3 and 0.5 times", {1.6, 3, 0.5}, Interpolation::linear),
          upsample_row("nearest, 0.4, 1.3 and 2 times", {0.4, 1.3, 2}, Interpolation::nearest),
          {"instance norm", {}, 4, {{4}, {4}}, group(0)},
          {"group norm", {}, 4, {{4}, {4}}, group(2)},
          {"batch norm", {}, 4, {{4}, {4}}, [](const Tensors& in) { return batch_norm(in[0], in[1], in[2]).y; }}};
}

// Elements that all ranks of y's grid read of x and have not.
std::int64_t halo_elements(const Reads& reads, const Layout& x, const Layout& y) {
  std::int64_t elements = 0;
  for (int r = 0; r < x.grid->ranks(); ++r) {
    const auto have = x.box(r), out = y.box(r);
    Box need = have;
    for (int d = 1; d < 4; ++d) {
      if (x.axis_of(d) < 0) continue;
      const auto n = x.global[d], first = out.begin[d], last = out.end[d] - 1;
      const auto i = static_cast<std::size_t>(d - 1);
      auto begin = reads(i, n, first).first, end = reads(i, n, last).second + 1;
      begin = std::clamp<std::int64_t>(begin, 0, n), end = std::clamp<std::int64_t>(end, begin, n);
      if (last < first) end = begin;
      need.begin[d] = begin, need.end[d] = end;
    }
    if (need.elements() > 0) elements += need.elements() - intersection(need, have).elements();
  }
  return elements;
}

struct Whole {
  Tensor y;
  Tensors gradients;
};
// y and the gradients of sum y u.
Whole run_row(const Row& row, const Tensors& in, const std::function<Tensor(const Tensor& y)>& u) {
  Tape tape;
  const auto y = row.run(in);
  return {y, tape.vjp({y}, {u(y)}, in)};
}

// Of volumes with batch, planes and the channels of a row.
GridExtents extents_of(const std::vector<int>& cuts) {
  return {.depth = cuts[0], .height = cuts.size() > 1 ? cuts[1] : 1, .width = cuts.size() > 2 ? cuts[2] : 1};
}

void check_row(const Row& row, const std::vector<int>& cuts, std::int64_t batch, std::int64_t planes,
               Overlap overlap = Overlap::never) {
  int ranks = 1;
  for (const int parts : cuts) ranks *= parts;
  Shape shape{batch, 6, 5, 4, row.channels};
  for (std::size_t i = 0; i < cuts.size(); ++i)
    shape[static_cast<int>(i) + 1] = row.planes_of_a_rank > 0 ? row.planes_of_a_rank * cuts[i] : cuts[i] > 1 ? planes : 6;
  Tensors whole_in{global_tensor(shape, 1)};
  for (std::size_t i = 0; i < row.parameters.size(); ++i) whole_in.push_back(global_tensor(row.parameters[i], 2 + i));
  const auto whole = run_row(row, whole_in, [](const Tensor& y) { return global_tensor(y.shape(), 9); });
  Traffic traffic;
  std::atomic<std::int64_t> expected{-1};
  on_ranks(ranks, [&](const Communicator& bare) {
    const Communicator comm(std::make_shared<Counting>(bare.shared_transport(), traffic));
    const auto grid = make_grid(comm, extents_of(cuts), overlap);
    const auto layout = activation_layout(grid, shape);
    Tensors in{part_of(whole_in[0], layout)};
    for (std::size_t i = 1; i < whole_in.size(); ++i)
      in.push_back(whole_in[i].with_layout(same_layout(grid, whole_in[i].shape())));
    const auto mine = run_row(row, in, [](const Tensor& y) { return global_tensor(y.layout()->global, 9, y.layout()); });
    require(mine.y.layout()->global == whole.y.shape(), "[test] {}: {} for {}", row.name, mine.y, whole.y);
    require_close(row.name + ": values", mine.y, part_of(whole.y, mine.y.layout()), 1e-12);
    require_close(row.name + ": gradient", mine.gradients[0], part_of(whole.gradients[0], layout), 1e-12);
    for (std::size_t i = 1; i < in.size(); ++i)
      require_close(fmt::format("{}: parameter {}", row.name, i), mine.gradients[i], whole.gradients[i], 1e-12);
    if (comm.rank() == 0 && row.reads) expected = halo_elements(row.reads, *layout, *mine.y.layout());
  });
  if (!row.counted) return;
  // Forth and back.
  INFO(row.name << ", " << ranks << " ranks, batch " << batch << ", input " << to_string(shape)
                << (overlap == Overlap::always ? ", overlapped" : ""));
  CHECK(traffic.bytes == (row.reads ? 2 * expected * 8 : 0));
  // No collective carries activations: only parameters' gradients, statistics of channels, what a grid is made of.
  std::int64_t most = 2 * batch * row.channels + 2 * ranks;
  for (const auto& parameter : row.parameters) most += parameter.elements();
  CHECK(traffic.largest <= most);
}

}  // namespace

TEST_CASE("windows: exact on every split, with no byte beyond the halos") {
  int number = 0;
  for (const auto& row : table())
    for (const auto& cuts : std::vector<std::vector<int>>{{2}, {4}, {8}, {2, 2}, {4, 2}}) {
      ++number;
      for (const std::int64_t batch : {1, 3})
        for (const std::int64_t planes : {16, 18}) {
          if (row.planes_of_a_rank > 0 && planes == 18) continue;
          // Of a row that has both, each batch goes with each extent on some of the splits.
          if (!all_tests() && row.planes_of_a_rank == 0 && ((batch == 1) == (planes == 16)) != (number % 2 == 0)) continue;
          try {
            check_row(row, cuts, batch, planes);
            if (row.overlaps) check_row(row, cuts, batch, planes, Overlap::always);
          } catch (const std::exception& error) {
            FAIL_CHECK(row.name << ": " << std::string(error.what()));
          }
        }
    }
}

TEST_CASE("windows: 10 and 18 planes on 4 ranks") {
  for (const auto& row : table())
    if (row.planes_of_a_rank == 0)
      for (const std::int64_t planes : {10, 18}) {
        CHECK_NOTHROW(check_row(row, {4}, 1, planes));
        if (row.overlaps) CHECK_NOTHROW(check_row(row, {4}, 1, planes, Overlap::always));
      }
}

TEST_CASE("windows: 18 ranks, 3 x 3 x 2, with kernel (5, 4, 3), padding (1, 1, 2), stride (3, 1, 2), dilation (3, 3, 1)") {
  const Row row{"the hard case",
                [](std::size_t i, std::int64_t, std::int64_t o) {
                  static constexpr std::array windows{Window{5, 3, 1, 3}, Window{4, 1, 1, 3}, Window{3, 2, 2, 1}};
                  return windows[i].reads(o);
                },
                1,
                {{2, 5, 4, 3, 1}, {2}},
                [](const Tensors& in) {
                  return conv(in[0], in[1], in[2],
                              {.stride = {3, 1, 2}, .dilation = {3, 3, 1}, .padding_low = {1, 1, 2}, .padding_high = {1, 1, 2}});
                }};
  CHECK_NOTHROW(check_row(row, {3, 3, 2}, 1, 50));
  CHECK_NOTHROW(check_row(row, {3, 3, 2}, 1, 50, Overlap::always));
}

TEST_CASE("windows: blocks in three dimensions convolve while halos travel, edges and corners included") {
  for (const auto& row : table())
    if (row.overlaps) CHECK_NOTHROW(check_row(row, {2, 2, 2}, 1, row.planes_of_a_rank > 0 ? 16 : 18, Overlap::always));
}

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
            in.push_back(whole_in.back().with_layout(same_layout(grid, row.parameters[i])));
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
    const auto w = global_tensor({4, 3, 3, 3, 3}, 2).with_layout(same_layout(grid, {4, 3, 3, 3, 3}));
    std::string forward, backward;
    const auto names = [](std::span<const Tape::Entry> entries) {
      std::string line;
      for (const auto& entry : entries) line += " " + std::string(entry.name);
      return line + " ";
    };
    Tape outer;
    {
      Tape tape;
      const auto y = conv(x, w, {}, {.padding_low = 1, .padding_high = 1});
      forward = names(tape.entries());
      const auto before = outer.entries().size();
      (void)tape.vjp({y}, {global_tensor(y.layout()->global, 3, y.layout())}, {x, w});
      backward = names(std::span(outer.entries()).subspan(before));
    }
    // The order of the calls tells what lies between a start and its wait.
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

TEST_CASE("windows: second derivatives of what overlaps") {
  on_ranks(4, [](const Communicator& comm) {
    const auto grid = make_grid(comm, {.depth = 2, .height = 2}, Overlap::always);
    const Shape shape{1, 9, 8, 4, 2}, kernel{3, 3, 3, 2, 2};
    const auto layout = activation_layout(grid, shape);
    const auto second = [&](const Tensor& x, const Tensor& w, const Tensor& u) {
      Tape outer;
      Tape tape;
      const auto y = conv(x, w, {}, {.stride = {2, 1, 1}, .padding_low = 1, .padding_high = 1, .activation = Activation::none});
      const auto first = tape.vjp({square(y)}, {ones_like(y)}, {x, w}, Record::yes);
      return outer.vjp({first[0]}, {u}, {x, w});
    };
    const auto x = global_tensor(shape, 1), w = global_tensor(kernel, 2), u = global_tensor(shape, 3);
    const auto whole = second(x, w, u);
    const auto mine = second(part_of(x, layout), w.with_layout(same_layout(grid, kernel)), part_of(u, layout));
    require_close("x", mine[0], part_of(whole[0], layout), 1e-11);
    require_close("w", mine[1], whole[1], 1e-11);
  });
}

TEST_CASE("windows: one exchange for a convolution and its pooling, where that moves less") {
  int merged = 0, number = 0;
  for (const std::int64_t channels : {1, 2, 24})
    for (const bool average : {true, false})
      for (const auto& pool : {PoolAttributes{.kernel = 3, .stride = 2, .padding_low = 1, .padding_high = 1},
                               PoolAttributes{.kernel = 2, .stride = 2}, PoolAttributes{.kernel = 3, .stride = 1}}) {
        ++number;
        // Of the two ways each split takes one, and the other with the next pooling.
        for (const auto& cuts : std::vector<std::vector<int>>{{2}, {4}, {3, 2}, {2, 2, 2}}) {
          ++number;
          for (const auto overlap : {Overlap::never, Overlap::always}) {
            if (!all_tests() && (overlap == Overlap::always) != (number % 2 == 0)) continue;
            const Row row{"convolution and pooling",
                          {},
                          channels,
                          {{24, 3, 3, 3, channels}, {24}},
                          [&](const Tensors& in) {
                            const auto z = conv_for_pool(in[0], in[1], in[2], {.padding_low = 1, .padding_high = 1}, pool);
                            if (comm_rank_of(in[0]) == 0) merged += z.out != nullptr;
                            return average ? avg_pool(z, Activation::leaky_relu(0.1)) : max_pool(z);
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
