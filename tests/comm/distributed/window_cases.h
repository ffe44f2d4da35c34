#pragma once
// Ops on windows as rows of a table, and the check of a row for any split: values, gradients and the bytes of all messages.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/distributed/distributed.h"
#include "framework/engine/tape.h"
#include "tests/support/distributed.h"
#include "tests/support/noting_transport.h"
#include "tests/support/ranks.h"

namespace mpigrad::testing::windows {

// Elements sent by all ranks in messages, and the elements of the largest collective.
struct Traffic {
  std::atomic<std::int64_t> bytes{0}, largest{0};
};

class Counting final : public NotingTransport<Counting, Traffic&> {
 public:
  using NotingTransport::NotingTransport;
  void note(std::span<const Message> sends, DType type) {
    for (const auto& message : sends) notes_.bytes += message.count * size_of(type);
  }
  void note(const Collective& call) {
    auto elements = call.count;
    for (const auto count : call.counts) elements += count;
    auto before = notes_.largest.load();
    while (before < elements && !notes_.largest.compare_exchange_weak(before, elements)) {
    }
  }
};

// The first and last input that output o reads in spatial dimension i with n inputs; inputs outside the tensor are padding.
using Reads = std::function<std::pair<std::int64_t, std::int64_t>(std::size_t i, std::int64_t n, std::int64_t o)>;

inline std::int64_t ceil_of(std::int64_t a, std::int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }
inline std::int64_t floor_of(std::int64_t a, std::int64_t b) { return -ceil_of(-a, b); }

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
  Reads reads;  // empty: nothing is exchanged
  std::int64_t channels;
  std::vector<Shape> parameters;
  std::function<Tensor(const Tensors&)> run;  // in: x and the parameters
  std::int64_t planes_of_a_rank = 0;          // 0: 16 and 18 planes in all; otherwise that many on each rank
  bool overlaps = false;                      // computes during the halo exchange, if the grid has Overlap::always
  bool counted = true;                        // the bytes are those that `reads` predicts
};

inline Reads same(const Window& w) {
  return [w](std::size_t, std::int64_t, std::int64_t o) { return w.reads(o); };
}

inline Row conv_row(const char* name, std::int64_t k, std::int64_t s, std::int64_t p, std::int64_t d = 1,
                    std::int64_t groups = 1) {
  return {name,
          same({k, s, p, d}),
          4,
          {{6, k, k, k, 4 / groups}, {6}},
          [=](const Tensors& in) {
            return conv(in[0], in[1], in[2],
                        {.stride = s,
                         .dilation = d,
                         .padding = p,
                         .groups = groups,
                         .activation = k == 4 ? Activation::leaky_relu(0.25) : Activation::none});
          },
          0,
          true};
}

// Elements of x that ranks of y's grid read and do not have, summed over ranks.
inline std::int64_t halo_elements(const Reads& reads, const Layout& x, const Layout& y) {
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
inline Whole run_row(const Row& row, const Tensors& in, const std::function<Tensor(const Tensor& y)>& u) {
  Tape tape;
  const auto y = row.run(in);
  return {y, tape.vjp({y}, {u(y)}, in)};
}

// The grid for these cuts of batch, planes and channels of a row.
inline GridExtents extents_of(const std::vector<int>& cuts) {
  return {.depth = cuts[0], .height = cuts.size() > 1 ? cuts[1] : 1, .width = cuts.size() > 2 ? cuts[2] : 1};
}

inline void check_row(const Row& row, const std::vector<int>& cuts, std::int64_t batch, std::int64_t planes,
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
      in.push_back(whole_in[i].with_layout(replicated_layout(grid, whole_in[i].shape())));
    const auto mine = run_row(row, in, [](const Tensor& y) { return global_tensor(y.layout()->global, 9, y.layout()); });
    require(mine.y.layout()->global == whole.y.shape(), "[test] {}: {} for {}", row.name, mine.y, whole.y);
    require_close(row.name + ": values", mine.y, part_of(whole.y, mine.y.layout()), 1e-12);
    require_close(row.name + ": gradient", mine.gradients[0], part_of(whole.gradients[0], layout), 1e-12);
    for (std::size_t i = 1; i < in.size(); ++i)
      require_close(fmt::format("{}: parameter {}", row.name, i), mine.gradients[i], whole.gradients[i], 1e-12);
    if (comm.rank() == 0 && row.reads) expected = halo_elements(row.reads, *layout, *mine.y.layout());
  });
  if (!row.counted) return;
  // Forward and backward.
  INFO(row.name << ", " << ranks << " ranks, batch " << batch << ", input " << to_string(shape)
                << (overlap == Overlap::always ? ", overlapped" : ""));
  CHECK(traffic.bytes == (row.reads ? 2 * expected * 8 : 0));
  // Collectives carry no activations, only gradients of parameters, statistics of channels, and data to create the grid.
  std::int64_t most = 2 * batch * row.channels + 2 * ranks;
  for (const auto& parameter : row.parameters) most += parameter.elements();
  CHECK(traffic.largest <= most);
}

}  // namespace mpigrad::testing::windows
