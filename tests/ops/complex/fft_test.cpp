// Fourier transforms on one rank: values by NumPy 2.4, random transforms against direct sums, refusals, Taylor tests. Derivatives
// are also in the table of ops (op_rows_complex.cpp).

#include "ops/fft/fft.h"

#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <numbers>

#include "comm/check/taylor_test.h"
#include "comm/fft/fft.h"
#include "ops/complex/complex.h"
#include "ops/elementwise/elementwise.h"
#include "ops/kernel/thread_buffer.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/comm/fft/direct_sums.h"
#include "tests/support/errors.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

using Values = std::vector<double>;

Tensor real_of(const Shape& shape, const Values& values) { return from_vector(shape, values, DType::float64); }
Tensor z_of(const Shape& shape, const Values& values) { return from_vector(shape, values, DType::complex128); }
void check_values(const Tensor& z, const Values& expected) {
  const auto values = z.to_vector();
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(std::abs(values[i] - expected[i]) < 2e-15 * (8 + std::abs(expected[i])));
}

}  // namespace

TEST_CASE("fft: values of NumPy") {
  const Values five{1, 2, -1, 0.5, 3}, six{1, 2, -1, 0.5, 3, -2}, four{1, 5, 2, -1, 0, 0.5, 3, 7};
  check_values(fft(real_of({5}, five), {0}),
               {5.5, 0.0, 2.949593469062211, 1.8327343947338632, -3.199593469062211, -0.8387995221502571, -3.199593469062211,
                0.8387995221502571, 2.949593469062211, -1.8327343947338632});
  check_values(rfft(real_of({5}, five), {0}),
               {5.5, 0.0, 2.949593469062211, 1.8327343947338632, -3.199593469062211, -0.8387995221502571});
  check_values(rfft(real_of({6}, six), {0}), {3.5, 0.0, -0.5, 0.0, 0.5, -6.928203230275509, 2.5, 0.0});
  // Not Hermitian: imaginary parts of the first and of the last number are ignored.
  check_values(irfft(z_of({4}, four), {0}, 6),
               {1.3333333333333333, 0.14433756729740638, 0.7663460352255527, -1.0, -0.099679368558886, -0.14433756729740646});
  check_values(irfft(z_of({4}, four), {0}, 7), {1.5714285714285714, -1.0567844706958796, 2.454319341908681, -2.2769132693128493,
                                                1.1514843906421175, -1.354075034672354, 0.5105404707017137});
  const Tensor z = z_of({2, 3}, {1, 2, 0, -1, 2, 0, 3, 0, 0, 0.5, -1, -1});
  check_values(fft(z, {0, 1}), {5.0, 0.5, 3.9330127018922196, 3.6160254037844384, 3.0669872981077804, 1.8839745962155614, 1.0,
                                1.5, -5.665063509461096, 4.848076211353315, -1.3349364905389034, -0.3480762113533158});
  check_values(ifft(z, {-2, -1}), {0.8333333333333333, 0.08333333333333333, 0.5111645496846301, 0.3139957660359269,
                                   0.6555021169820365, 0.6026709006307396, 0.16666666666666669, 0.25, -0.22248941508981723,
                                   -0.0580127018922193, -0.9441772515768494, 0.8080127018922192});
  const Tensor y = z_of({3, 2}, {1, 2, 0, -1, 3, 0, 0, 0.5, -1, 1, 2, -3});
  check_values(irfft(y, {0, 1}, 3),
               {0.7777777777777777, 0.7846864251656744, -0.5624642029434521, -0.7995724914118478, 0.8293446239041948,
                0.25890300210246586, 0.35512804696740347, -0.7033474465469102, 0.059544264984693854});
  check_values(irfft(y, {0, 1}, 2), {0.8333333333333333, 0.16666666666666669, -0.5275105849101827, 0.8161857195049955,
                                     0.1941772515768494, -0.48285238617166226});
  check_values(rfft(real_of({3, 3}, {1, 2, 3, 0.5, -1, 4, 2, 2, -3}), {0, 1}),
               {10.5, 0.0, 0.0, 0.8660254037844386, 3.75, -2.1650635094610964, 5.25, 3.897114317029974, 3.75, 2.1650635094610964,
                -9.75, -2.1650635094610964});
  check_values(fftfreq(5, 0.5), {0.0, 0.4, 0.8, -0.8, -0.4});
  check_values(fftfreq(6), {0, 1 / 6.0, 2 / 6.0, -0.5, -2 / 6.0, -1 / 6.0});
  check_values(fftfreq(1), {0});
  check_values(rfftfreq(5), {0, 0.2, 0.4});
  check_values(rfftfreq(6, 2), {0, 0.5 / 6, 1 / 6.0, 0.25});
  check_values(rfftfreq(2), {0, 0.5});
}

TEST_CASE("fft: random transforms of any extents equal direct sums, and inverses bring the numbers back") {
  Dice dice(11);
  const cpu::BufferGuard guard;
  for (int trial = 0; trial < 120; ++trial) {
    const auto problem = random_problem(dice, trial);
    const Tensor x = problem.real(trial), z = problem.complex(trial);
    const double tolerance = problem.dtype == DType::float64 ? 1e-13 : 2e-5;
    INFO(problem.text());
    CHECK(largest_difference(fft(z, problem.axes), direct_sum(z, problem.axes, -1)) < tolerance * problem.points());
    CHECK(largest_difference(ifft(fft(z, problem.axes), problem.axes), z) < tolerance * 10);
    const Tensor half = rfft(x, problem.axes);
    CHECK(largest_difference(half, half_of(direct_sum(cast(x, z.dtype()), problem.axes, -1), problem.axes.back())) <
          tolerance * problem.points());
    CHECK(largest_difference(irfft(half, problem.axes, x.dim(problem.axes.back())), x) < tolerance * 10);
  }
  CHECK(cpu::BufferGuard::is_alive());
}

TEST_CASE("fft: Taylor tests to second order, through a product in Fourier space") {
  on_ranks(1, [](const Communicator& comm) {
    const Tensor x = random_uniform({2, 3, 4, 5}, {.key = 5}, -1, 1, DType::float64);
    const auto smooth = [&](const Tensors& in) {
      const Tensor k = reshape(rfftfreq(5), {1, 1, 1, 3});
      return Tensors{square(irfft(rfft(square(in[0]), {1, 2, 3}) * exp(-square(k)), {1, 2, 3}, 5))};
    };
    require_taylor("a filter", smooth, {x}, comm, {});
    require_taylor("power", [](const Tensors& in) { return Tensors{square(abs(fft(in[0], {1, 3})))}; }, {x}, comm, {});
  });
}

TEST_CASE("fft: bad input is refused by name, and extents of 0 have a rule") {
  const Tensor x = ones({2, 3}, DType::float64);
  CHECK(has(error_text([&] { fft(x, {}); }), "[fft] name the dimensions"));
  CHECK(has(error_text([&] { fft(x, {0, -2}); }), "[fft] a dimension is named twice"));
  CHECK(has(error_text([&] { fft(x, {2}); }), "[fft]"));
  CHECK(has(error_text([&] { rfft(cast(x, DType::complex64), {0}); }), "[rfft]"));
  CHECK(has(error_text([&] { rfft(cast(x, DType::int32), {0}); }), "[rfft] float32 or float64"));
  CHECK(has(error_text([&] { fft(cast(x, DType::bfloat16), {0}); }), "[fft] float32, float64 or a complex"));
  CHECK(has(error_text([&] { irfft(x, {0}, 2); }), "[irfft] complex64"));
  CHECK(has(error_text([&] { irfft(fft(x, {1}), {1}, 6); }), "[irfft] the extent of dimension 1 of the result is 4 or 5, not 6"));
  CHECK(has(error_text([&] { fft(ones({2, 0}), {1}); }), "[fft] dimension 1 has 0 elements"));
  CHECK(has(error_text([&] { fftfreq(0); }), "[fftfreq]"));
  CHECK(fft(ones({0, 4}), {1}).shape() == Shape{0, 4});
  UseDevice dry(DeviceKind::dry);
  CHECK(irfft(rfft(ones({4, 6}), {0, 1}), {0, 1}, 6).type() == TensorType{Shape{4, 6}, DType::float32});
}
