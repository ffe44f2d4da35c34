// Power spectra: sums over all modes, shot noise and windows of painted particles, adjoints, and splits.

#include "models/simulation/power_spectrum.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "comm/check/adjoint_check.h"
#include "comm/check/taylor_test.h"
#include "comm/fft/fft.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using fields::power_spectrum, fields::SpectrumOptions;

namespace {

constexpr double pi = std::numbers::pi;

// The kernel of order p = 1 ... 4 at a distance of t cells.
double kernel(int p, double t) {
  t = std::abs(t);
  switch (p) {
    case 1: return t < 0.5 ? 1 : 0;
    case 2: return std::max(1 - t, 0.0);
    case 3: return t < 0.5 ? 0.75 - t * t : t < 1.5 ? (1.5 - t) * (1.5 - t) / 2 : 0;
    default: return t < 1 ? (4 - 6 * t * t + 3 * t * t * t) / 6 : t < 2 ? std::pow(2 - t, 3) / 6 : 0;
  }
}

}  // namespace

TEST_CASE("power spectrum: the mean over all modes of a bin, for odd extents and any spacing") {
  const Shape shape{2, 5, 4, 6, 2};
  const std::array<double, 3> spacing{0.7, 1.1, 0.9};
  const std::vector<double> edges{0.2, 1.7, 2.5, 3.1, 5.2};
  const auto x = global_tensor(shape, 1);
  const auto found = power_spectrum(x, {.spacing = spacing, .edges = edges});
  CHECK(found.power.shape() == Shape{2, 4, 2});
  const double volume = 5 * 4 * 6 * 0.7 * 1.1 * 0.9, points = 5 * 4 * 6;
  const auto F = fft(x, {1, 2, 3}).to_vector();
  std::vector<double> power(2 * 4 * 2), modes(4), k(4);
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    std::array<std::int64_t, 5> at{};
    for (std::int64_t d = 5, rest = i; d-- > 0; rest /= shape[static_cast<int>(d)])
      at[static_cast<std::size_t>(d)] = rest % shape[static_cast<int>(d)];
    double square = 0;
    for (std::size_t d = 0; d < 3; ++d) {
      const auto n = shape[static_cast<int>(d) + 1], wave = at[d + 1] <= n / 2 ? at[d + 1] : at[d + 1] - n;
      square += std::pow(2 * pi * static_cast<double>(wave) / (static_cast<double>(n) * spacing[d]), 2);
    }
    for (std::size_t b = 0; b < 4; ++b) {
      if (std::sqrt(square) < edges[b] || std::sqrt(square) >= edges[b + 1]) continue;
      const auto j = static_cast<std::size_t>(i);
      power[(static_cast<std::size_t>(at[0]) * 4 + b) * 2 + static_cast<std::size_t>(at[4])] +=
          volume / (points * points) * (F[2 * j] * F[2 * j] + F[2 * j + 1] * F[2 * j + 1]);
      if (at[0] == 0 && at[4] == 0) modes[b] += 1, k[b] += std::sqrt(square);
    }
  }
  const auto of_modes = from_vector({4}, modes, DType::float64);
  require_close("modes", found.modes, of_modes, 0);
  require_close("k", found.k, from_vector({4}, k, DType::float64) / of_modes, 1e-14);
  require_close("power", found.power, from_vector({2, 4, 2}, power, DType::float64) / reshape(of_modes, {1, 4, 1}), 1e-13);
  const auto half = power_spectrum(cast(x, DType::float32), {.spacing = spacing, .edges = edges});
  CHECK(half.power.dtype() == DType::float32);
  require_close("float32", cast(half.power, DType::float64), found.power, 1e-6);
}

TEST_CASE("power spectrum: bins by default, and Parseval's sum") {
  const auto x = global_tensor({1, 1, 9, 8, 1}, 1);
  const auto found = power_spectrum(x, {.spacing = {1, 0.5, 0.5}});
  const double fundamental = 2 * pi / 4;
  CHECK(found.k.dim(0) == 4);  // Nyquist's wave number is 2 pi
  CHECK(found.k.to_vector()[0] == doctest::Approx(fundamental).epsilon(0.2));
  const auto all = power_spectrum(x, {.spacing = {1, 0.5, 0.5}, .edges = {0, 100}});
  CHECK(all.modes.to_vector()[0] == 71);
  const double variance = mean(square(x - mean(x))).item();
  CHECK(all.power.to_vector()[0] * 71 / (9 * 8 * 0.25) == doctest::Approx(variance).epsilon(1e-13));
}

TEST_CASE("power spectrum: particles at random have their shot noise, whatever the kernel") {
  // One particle, its place in a cell averaged by Gauss' rule, which is exact for kernels that are polynomials there.
  const std::int64_t n = 9;
  const double h = 0.4, volume = 9 * 0.4;
  const std::vector<double> nodes{0, 0.5384693101056831, -0.5384693101056831, 0.9061798459386640, -0.9061798459386640};
  const std::vector<double> weights{128.0 / 225, 0.4786286704993665, 0.4786286704993665, 0.2369268850561891, 0.2369268850561891};
  for (int p = 1; p <= 4; ++p)
    for (const bool aliases : {true, false}) {
      Tensor noise, corrected, raw;
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        std::vector<double> delta;
        const double place = (p % 2 == 1 ? 4 : 4.5) + 0.5 * nodes[i];  // kernels of even order have a kink at mesh points
        for (std::int64_t c = 0; c < n; ++c)
          delta.push_back(static_cast<double>(n) * kernel(p, static_cast<double>(c) - place) - 1);
        const auto x = from_vector({1, 1, 1, n, 1}, delta, DType::float64);
        SpectrumOptions options{.spacing = {1, 1, h}, .window = p, .aliases = aliases};
        const auto add = [&](Tensor& to) {
          const auto term = weights[i] / 2 * power_spectrum(x, options).power;
          to = to ? to + term : term;
        };
        add(corrected);
        options.shot_noise = volume, add(noise);
        options.window = 0, options.shot_noise = 0, add(raw);
      }
      CHECK(largest_difference(noise, zeros_like(noise)) < 1e-12 * volume);
      if (aliases) CHECK(largest_difference(corrected, volume * ones_like(corrected)) < 1e-12 * volume);
      for (std::size_t b = 0; b < 4 && !aliases; ++b) {
        const double phase = pi * static_cast<double>(b + 1) / static_cast<double>(n);
        const double ratio = corrected.to_vector()[b] / raw.to_vector()[b];
        CHECK(ratio == doctest::Approx(std::pow(phase / std::sin(phase), 2 * p)).epsilon(1e-12));
      }
    }
}

TEST_CASE("power spectrum on ranks: values, gradients and adjoints") {
  const Shape shape{2, 5, 4, 6, 2};
  const SpectrumOptions options{
      .spacing = {0.7, 1.1, 0.9}, .edges = {0.2, 1.7, 2.5, 4}, .window = 2, .aliases = true, .shot_noise = 0.3};
  const auto run = [&](const Tensor& x) {
    Tape tape;
    const auto found = power_spectrum(x, options);
    return Tensors{tape.gradient(sum(square(found.power)), {x})[0], found.power, found.k, found.modes};
  };
  const auto whole = run(global_tensor(shape, 1));
  for (const auto& extents : std::vector<GridExtents>{
           {}, {.depth = 2}, {.width = 3}, {.depth = 2, .height = 2}, {.sample = 2, .depth = 2}, {.depth = 2, .channel = 2}})
    check_on_ranks(ranks_of(extents), "power spectrum", [&](const Communicator& comm) {
      Dice dice(static_cast<std::uint64_t>(comm.size()));
      const auto layout = with_random_cuts(activation_layout(make_grid(comm, extents), shape), dice);
      const auto x = global_tensor(shape, 1, layout);
      const auto split = run(x);
      for (std::size_t i = 0; i < split.size(); ++i)
        require_close("split", split[i].without_layout(),
                      i < 2 ? part_of(whole[i], split[i].layout()).without_layout() : whole[i], 1e-12);
      require(split[3].to_vector() == whole[3].to_vector(), "[test] numbers of modes");
      require_adjoint(
          "power spectrum", [&](const Tensors& in) { return Tensors{power_spectrum(in[0], options).power}; }, {x}, comm);
      require_taylor(
          "power spectrum", [&](const Tensors& in) { return Tensors{log(power_spectrum(in[0], options).power + 1)}; }, {x}, comm);
    });
}

TEST_CASE("power spectrum: misuse is refused by name") {
  const auto x = ones({1, 4, 4, 4, 1}, DType::float64);
  const auto text = [&](const SpectrumOptions& options) { return error_text([&] { power_spectrum(x, options); }); };
  CHECK(has(text({.edges = {1, 3, 2}}), "two edges of bins or more, ascending from 0 on: 1, 3, 2"));
  CHECK(has(text({.edges = {0, NAN}}), "ascending"));
  CHECK(has(text({.edges = {0.1, 0.2, 2}}), "bin 0, |k| from 0.1 to 0.2, has no modes"));
  CHECK(has(text({.window = 5}), "a window of order 1 to 4, or 0 for none: 5"));
  CHECK(has(text({.spacing = {1, -1, 1}}), "the spacing is positive: -1"));
  CHECK(has(error_text([&] { power_spectrum(ones({3, 3})); }), "[power_spectrum] takes [N, D, H, W, C]"));
  CHECK(has(error_text([&] { power_spectrum(ones({1, 1, 1, 1, 1})); }), "two edges of bins"));
  CHECK(has(error_text([&] { power_spectrum(arange(4)); }), "takes [N, D, H, W, C]"));
}
