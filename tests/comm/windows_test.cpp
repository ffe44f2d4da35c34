// Windows that other systems refuse or gather whole activations for, by name: on 2, 4 and 8 ranks, split along one dimension and
// two, batches of 1 and 3, even and uneven blocks. Values and gradients are those of one rank, and the bytes of all messages are
// exactly those of the halo formula: what a rank's outputs read, less what it has.

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <functional>

#include "comm/spatial/distributed.h"
#include "comm/spatial/upsample.h"
#include "comm/transport/forwarding.h"
#include "framework/tape.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
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

struct Row {
  std::string name;
  Reads reads;  // none: nothing is exchanged
  std::int64_t channels;
  std::vector<Shape> parameters;
  std::function<Tensor(const Tensors&)> run;  // of x and the parameters
  std::int64_t planes_of_a_rank = 0;          // 0: 16 and 18 planes; else that many on each rank
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
  return {name, same({k, s, p, d}), 4, {{6, k, k, k, 4 / groups}, {6}}, [=](const Tensors& in) {
            return conv(in[0], in[1], in[2], {.stride = s, .dilation = d, .padding_low = p, .padding_high = p, .groups = groups});
          }};
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

void check_row(const Row& row, const std::vector<int>& cuts, std::int64_t batch, std::int64_t planes) {
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
    const auto grid =
        make_grid(comm, {.depth = cuts[0], .height = cuts.size() > 1 ? cuts[1] : 1, .width = cuts.size() > 2 ? cuts[2] : 1});
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
  // Forth and back.
  INFO(row.name << ", " << ranks << " ranks, batch " << batch << ", input " << to_string(shape));
  CHECK(traffic.bytes == (row.reads ? 2 * expected * 8 : 0));
  // No collective carries activations: only parameters' gradients, statistics of channels, what a grid is made of.
  std::int64_t most = 2 * batch * row.channels + 2 * ranks;
  for (const auto& parameter : row.parameters) most += parameter.elements();
  CHECK(traffic.largest <= most);
}

}  // namespace

TEST_CASE("windows: exact on every split, with no byte beyond the halos") {
  for (const auto& row : table())
    for (const auto& cuts : std::vector<std::vector<int>>{{2}, {4}, {8}, {2, 2}, {4, 2}})
      for (const std::int64_t batch : {1, 3})
        for (const std::int64_t planes : {16, 18}) {
          if (row.planes_of_a_rank > 0 && planes == 18) continue;
          try {
            check_row(row, cuts, batch, planes);
          } catch (const std::exception& error) {
            FAIL_CHECK(row.name << ": " << std::string(error.what()));
          }
        }
}

TEST_CASE("windows: 10 and 18 planes on 4 ranks") {
  for (const auto& row : table())
    if (row.planes_of_a_rank == 0)
      for (const std::int64_t planes : {10, 18}) CHECK_NOTHROW(check_row(row, {4}, 1, planes));
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
}
