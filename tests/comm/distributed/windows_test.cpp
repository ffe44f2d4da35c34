// Windows that other systems refuse, or for which they gather whole activations, by name: on 2, 4 and 8 ranks, split along one
// and two dimensions, batches of 1 and 3, even and uneven blocks. Values and gradients equal those of one rank, and the bytes of
// all messages are exactly those of the halo formula: the inputs that a rank's outputs read, minus its own block.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "comm/distributed/distributed.h"
#include "comm/distributed/upsample.h"
#include "tests/comm/distributed/window_cases.h"
#include "tests/support/all_tests.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::testing::windows;

namespace {

// Upsamples by `factor`.
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

Row transposed_row(const char* name, std::int64_t k, std::int64_t s, std::int64_t p, std::int64_t output_padding = 0) {
  return {name, same({k, s, p, 1, true}), 3, {{3, k, k, k, 5}, {5}}, [=](const Tensors& in) {
            return conv_transpose(in[0], in[1], in[2], {.stride = s, .padding = p, .output_padding = output_padding});
          }};
}

std::vector<Row> table() {
  const auto two_planes = [](Row row) {
    row.planes_of_a_rank = 2;
    return row;
  };
  const auto pool = [](std::int64_t k, std::int64_t s, std::int64_t p, bool ceil = false) {
    return PoolAttributes{.kernel = k, .stride = s, .padding = p, .ceil_mode = ceil};
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

}  // namespace

TEST_CASE("windows: exact on every split, with no byte beyond the halos") {
  int number = 0;
  for (const auto& row : table())
    for (const auto& cuts : std::vector<std::vector<int>>{{2}, {4}, {8}, {2, 2}, {4, 2}}) {
      ++number;
      for (const std::int64_t batch : {1, 3})
        for (const std::int64_t planes : {16, 18}) {
          if (row.planes_of_a_rank > 0 && planes == 18) continue;
          // For a row with both, each batch runs with each extent on some of the splits.
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
                  return conv(in[0], in[1], in[2], {.stride = {3, 1, 2}, .dilation = {3, 3, 1}, .padding = {1, 1, 2}});
                }};
  CHECK_NOTHROW(check_row(row, {3, 3, 2}, 1, 50));
  CHECK_NOTHROW(check_row(row, {3, 3, 2}, 1, 50, Overlap::always));
}

TEST_CASE("windows: blocks in three dimensions convolve while halos travel, edges and corners included") {
  for (const auto& row : table())
    if (row.overlaps) CHECK_NOTHROW(check_row(row, {2, 2, 2}, 1, row.planes_of_a_rank > 0 ? 16 : 18, Overlap::always));
}
