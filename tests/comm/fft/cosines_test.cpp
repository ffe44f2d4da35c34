// Cosine and sine transforms: direct sums, inverses, adjoints, and the bits of one rank on any number of ranks.

#include "comm/fft/cosines.h"

#include "comm/check/adjoint_check.h"
#include "ops/complex/complex.h"
#include "tests/comm/fft/direct_sums.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// 2 sum over n of x(n) cos or sin, along the last dimension of a matrix.
std::vector<double> direct(const Tensor& x, bool odd) {
  const auto values = x.to_vector();
  const auto n = static_cast<std::size_t>(x.dim(1));
  std::vector<double> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    for (std::size_t j = 0; j < n; ++j) {
      const auto waves = static_cast<double>((i % n + (odd ? 1 : 0)) * (2 * j + 1));
      const double phase = std::numbers::pi * waves / static_cast<double>(2 * n);
      result[i] += 2 * values[i / n * n + j] * (odd ? std::sin(phase) : std::cos(phase));
    }
  return result;
}

}  // namespace

TEST_CASE("cosines: equal to direct sums for any extent, and undone by their inverses") {
  for (const std::int64_t n : {1, 2, 3, 4, 7, 8, 12, 13})
    for (const DType dtype : {DType::float64, DType::float32}) {
      const double tolerance = dtype == DType::float64 ? 1e-13 : 1e-5;
      const auto x = global_tensor({3, n}, 1, {}, dtype);
      const auto c = dct(x, {1}), s = dst(x, {-1});
      require_close("dct", c, from_vector({3, n}, direct(x, false), dtype), tolerance);
      require_close("dst", s, from_vector({3, n}, direct(x, true), dtype), tolerance);
      require_close("idct", idct(c, {1}), x, tolerance);
      require_close("idst", idst(s, {1}), x, tolerance);
      require_close("both dimensions", idst(dst(x, {0, 1}), {0, 1}), x, tolerance);
    }
}

TEST_CASE("cosines: of a complex tensor, for real and imaginary part") {
  const auto re = global_tensor({2, 5, 3}, 1), im = global_tensor({2, 5, 3}, 2);
  for (const bool odd : {false, true})
    for (const bool inverse : {false, true}) {
      const auto f = [&](const Tensor& x) { return local::half_waves(x, 1, {.odd = odd, .inverse = inverse}); };
      require_close("complex", f(complex(re, im)), complex(f(re), f(im)), 1e-14);
    }
}

TEST_CASE("cosines on ranks: adjoints to second order, and one rank's bits") {
  const Shape shape{2, 5, 4, 3, 1};
  using Transform = Tensor (*)(const Tensor&, const std::vector<int>&, const LayoutPtr&);
  const std::vector<std::pair<const char*, Transform>> all{{"dct", dct}, {"idct", idct}, {"dst", dst}, {"idst", idst}};
  for (const auto& extents : std::vector<GridExtents>{{}, {.depth = 2}, {.depth = 3}, {.depth = 2, .height = 2}, {.width = 5}})
    check_on_ranks(ranks_of(extents), "cosines", [&](const Communicator& comm) {
      Dice dice(static_cast<std::uint64_t>(comm.size()));
      const auto layout = with_random_cuts(activation_layout(make_grid(comm, extents), shape), dice);
      const auto x = global_tensor(shape, 1, layout);
      for (const auto& [name, f] : all)
        for (const auto& axes : std::vector<std::vector<int>>{{1, 2, 3}, {3, 1}, {1}}) {
          const auto whole = f(global_tensor(shape, 1), axes, {}), free = f(x, axes, {}), back = f(x, axes, layout);
          require(largest_difference(free.without_layout(), part_of(whole, free.layout()).without_layout()) == 0,
                  "[test] {}: other bits than one rank", name);
          require(*back.layout() == *layout, "[test] {}: layout {}", name, to_string(*back.layout()));
          if (axes.size() == 2) continue;
          require_adjoint(name, [f = f, &axes](const Tensors& in) { return Tensors{f(in[0], axes, {})}; }, {x}, comm,
                          {.linear = true});
        }
    });
}

TEST_CASE("cosines: misuse is refused by name") {
  const auto x = ones({2, 3}, DType::float64);
  CHECK(has(error_text([&] { dct(x, {}); }), "[dct] name the dimensions to transform"));
  CHECK(has(error_text([&] { dst(x, {1, -1}); }), "[dst] dimension -1 is named twice"));
  CHECK(has(error_text([&] { idct(arange(3), {0}); }), "[idct] float32 or float64 is needed"));
  CHECK(has(error_text([&] { idst(zeros({2, 0}, DType::float64), {1}); }), "[idst] dimension 1 has no elements"));
  CHECK(has(error_text([&] { dct(x, {1}, plain_layout(x.shape())); }), "[dct] a layout is named for a plain tensor"));
}
