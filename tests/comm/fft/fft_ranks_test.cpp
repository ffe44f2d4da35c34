// Fourier transforms of split tensors: 500 random transforms on random grids have the bits of one rank and the values of direct
// sums; adjoints, also to second order; messages; refusals.

#include "comm/fft/fft.h"

#include <cstring>

#include "comm/check/adjoint_check.h"
#include "comm/check/taylor_test.h"
#include "ops/complex/complex.h"
#include "ops/reduce/reduce.h"
#include "tests/comm/fft/direct_sums.h"
#include "tests/support/traffic.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// Slabs, pencils, or blocks of the samples as well, on all ranks; cuts at random, with ranks that have nothing.
LayoutPtr random_grid_layout(const Communicator& comm, Dice& dice, const Shape& shape) {
  GridExtents extents;
  int rest = comm.size();
  std::vector<int*> axes{&extents.depth, &extents.height, &extents.width};
  axes.erase(axes.begin() + dice(0, 2));  // one spatial dimension stays whole
  if (dice(0, 3) == 0) axes.push_back(&extents.sample);
  while (rest > 1) {
    const int prime = rest % 2 == 0 ? 2 : rest % 3 == 0 ? 3 : rest;
    *axes[static_cast<std::size_t>(dice(0, static_cast<std::int64_t>(axes.size()) - 1))] *= prime;
    rest /= prime;
  }
  auto layout = activation_layout(make_grid(comm, extents), shape);
  return dice(0, 1) == 0 ? layout : with_random_cuts(layout, dice);
}

void require_same_bits(const std::string& what, const Tensor& found, const Tensor& whole) {
  const Tensor expected = part_of(whole, found.layout());
  require(found.type() == expected.type(), "[test] {}: {} instead of {}", what, found, expected);
  require(found.bytes() == 0 || std::memcmp(found.raw(), expected.raw(), static_cast<std::size_t>(found.bytes())) == 0,
          "[test] {} differs from one rank by {:.1e}", what,
          largest_difference(found.without_layout(), expected.without_layout()));
}

}  // namespace

TEST_CASE("fft on ranks: 500 random transforms have one rank's bits and the values of direct sums") {
  for (int ranks = 1; ranks <= 8; ++ranks)
    check_on_ranks(ranks, "random transforms", [ranks](const Communicator& comm) {
      Dice dice(static_cast<std::uint64_t>(100 + ranks));
      for (int trial = 0; trial < 63; ++trial) {
        const auto problem = random_problem(dice, trial);
        const auto layout = random_grid_layout(comm, dice, problem.shape);
        const int seed = 1000 * ranks + trial;
        const auto what = fmt::format("{}, {}, rank {}", problem.text(), to_string(*layout), comm.rank());
        const double tolerance = problem.dtype == DType::float64 ? 1e-13 : 2e-5;
        if (trial % 3 == 0) {
          const Tensor whole = fft(problem.complex(seed), problem.axes);
          require_same_bits("fft: " + what, fft(problem.complex(seed, layout), problem.axes), whole);
          require_same_bits("ifft: " + what, ifft(problem.complex(seed, layout), problem.axes, layout),
                            ifft(problem.complex(seed), problem.axes));
          if (comm.rank() == trial % ranks)
            require_close("fft: " + what, whole, direct_sum(problem.complex(seed), problem.axes, -1),
                          tolerance * problem.points());
          continue;
        }
        const Tensor whole = rfft(problem.real(seed), problem.axes), half = rfft(problem.real(seed, layout), problem.axes);
        const std::int64_t extent = problem.shape[problem.axes.back()];
        require_same_bits("rfft: " + what, half, whole);
        const Tensor back = irfft(half, problem.axes, extent, layout);
        require(*back.layout() == *layout, "[test] irfft: {} has layout {}", what, to_string(*back.layout()));
        require_same_bits("irfft: " + what, back, irfft(whole, problem.axes, extent));
        if (comm.rank() == trial % ranks)
          require_close(
              "rfft: " + what, whole,
              half_of(direct_sum(cast(problem.real(seed), complex_type(problem.dtype)), problem.axes, -1), problem.axes.back()),
              tolerance * problem.points());
      }
    });
}

TEST_CASE("fft on ranks: adjoints to second order, Taylor tests, and one rank's bits of gradients") {
  for (const int ranks : {1, 2, 3, 4, 6})
    check_on_ranks(ranks, "adjoints", [ranks](const Communicator& comm) {
      Dice dice(static_cast<std::uint64_t>(ranks));
      const Shape shape{2, 5, 4, 6, 2};
      for (int trial = 0; trial < 3; ++trial) {
        const auto layout = random_grid_layout(comm, dice, shape);
        const std::vector<int> axes = trial == 0 ? std::vector{1, 2, 3} : trial == 1 ? std::vector{3, 1} : std::vector{2};
        const std::int64_t extent = shape[axes.back()];
        const Tensor x = global_tensor(shape, 1, layout), z = global_tensor(shape, 2, layout, DType::complex128);
        const auto check = [&](const char* name, const TensorFunction& f, const Tensor& at) {
          const auto report = adjoint_check(f, {at}, comm, {});
          require(report.passed, "[test] {}, {}: {}", name, to_string(*layout), report.message);
        };
        check(
            "fft", [&](const Tensors& in) { return Tensors{fft(in[0], axes)}; }, z);
        check(
            "ifft", [&](const Tensors& in) { return Tensors{ifft(in[0], axes, layout)}; }, z);
        check(
            "rfft", [&](const Tensors& in) { return Tensors{rfft(in[0], axes)}; }, x);
        const Tensor half = rfft(x, axes);
        check(
            "irfft", [&](const Tensors& in) { return Tensors{irfft(in[0], axes, extent)}; }, half);
        check(
            "square", [&](const Tensors& in) { return Tensors{square(irfft(square(rfft(in[0], axes)), axes, extent))}; }, x);
        if (trial == 0)
          require_taylor("rfft", [&](const Tensors& in) { return Tensors{square(abs(rfft(square(in[0]), axes)))}; }, {x}, comm,
                         {});

        const auto gradient = [&](const Tensor& of) {
          Tape tape;
          return tape.gradient(sum(square(irfft(rfft(of, axes) * 2, axes, extent, of.layout() ? layout : LayoutPtr()))), {of})[0];
        };
        require_same_bits("gradient", gradient(x), gradient(global_tensor(shape, 1)));
      }
    });
}

// Per redistribution and rank, a_r (N_b - b_r) times the other local extents.
TEST_CASE("fft on ranks: slabs send one redistribution, pencils two, and a pair costs as much again") {
  for (const auto& [depth, height] :
       {std::pair{1, 1}, std::pair{2, 1}, std::pair{3, 1}, std::pair{5, 1}, std::pair{2, 2}, std::pair{3, 2}}) {
    Traffic forward{.type = DType::complex128}, back{.type = DType::complex128};
    const Shape shape{1, 7, 6, 9, 2};
    std::atomic<std::int64_t> expected{0};
    check_on_ranks(depth * height, "traffic", [&, depth = depth, height = height](const Communicator& bare) {
      const GridExtents extents{.depth = depth, .height = height};
      const auto grid = make_grid(counted(bare, forward), extents);
      const auto layout = activation_layout(grid, shape);
      const Tensor y = rfft(global_tensor(shape, 1, layout), {1, 2, 3});
      const auto place = grid->coordinates(grid->rank);
      const auto block = [&](std::int64_t n, int parts, int part) {
        const auto cuts = balanced_cuts(n, parts);
        return cuts[static_cast<std::size_t>(part) + 1] - cuts[static_cast<std::size_t>(part)];
      };
      const std::int64_t d = block(7, depth, place[1]), h = block(6, height, place[2]), half = 5, channels = 2;
      const std::int64_t w = block(half, height, place[2]);  // after the first redistribution of pencils
      if (height > 1) expected += h * (half - w) * d * channels;
      if (depth > 1) expected += d * (6 - block(6, depth, place[1])) * w * channels;
      const auto other = make_grid(counted(bare, back), extents);
      Layout here = *y.layout();
      here.grid = other;
      const Tensor x = irfft(y.without_layout().with_layout(std::make_shared<Layout>(here)), {1, 2, 3}, 9);
      require(x.layout()->axes == layout->axes, "[test] the pair does not end where it began: {}", to_string(*x.layout()));
    });
    CHECK(forward.messages == expected);
    CHECK(forward.all() == expected);
    CHECK(back.all() == expected);
  }
}

TEST_CASE("fft on ranks: layouts that cannot be served are refused on all ranks") {
  check_on_ranks(8, "three axes", [](const Communicator& comm) {
    const auto grid = make_grid(comm, {.depth = 2, .height = 2, .width = 2});
    const Tensor x = global_tensor({1, 4, 4, 4, 1}, 1, activation_layout(grid, {1, 4, 4, 4, 1}));
    const auto text = error_text([&] { rfft(x, {1, 2, 3}); });
    require(has(text, "[rfft] dimension 3 is split over grid axis width") && has(text, "pencils"), "[test] {}", text);
    const auto local = error_text([&] { local::fft(x, {1}); });
    require(has(local, "[fft] along dimension 1, which is split"), "[test] {}", local);
  });
}
