#include "examples/tools/universe/field.h"

#include <cmath>
#include <numbers>

#include "framework/base/error.h"
#include "framework/tensor/random.h"

namespace mpigrad::universe {

namespace {

enum class Purpose : std::uint64_t { parameters, noise };

Philox generator(std::uint64_t seed, std::uint64_t universe, Purpose purpose) {
  return {seed, universe * 2 + static_cast<std::uint64_t>(purpose)};
}

}  // namespace

RealField white_noise(const SlabFft& fft, std::uint64_t seed, std::uint64_t universe) {
  const auto random = generator(seed, universe, Purpose::noise);
  RealField noise(fft.real_size());
  const auto first = static_cast<std::uint64_t>(fft.x_range().begin * fft.n() * fft.n());
  for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = random.normal(first + i);
  return noise;
}

ComplexField gaussian_field(const SlabFft& fft, const std::function<double(double)>& power, double cell, std::uint64_t seed,
                            std::uint64_t universe) {
  require(std::isfinite(cell) && cell > 0, "[universe] the side of a cell must be positive (Mpc/h), got {}", cell);
  // |k|^2 is (2 pi / L)^2 times an integer, so the spectrum is evaluated once per integer, not once per mode.
  const std::int64_t largest = fft.n() / 2;
  const double fundamental = 2 * std::numbers::pi / (static_cast<double>(fft.n()) * cell);
  std::vector<double> amplitude(static_cast<std::size_t>(3 * largest * largest + 1));
  const double volume = cell * cell * cell;
  for (std::size_t i = 1; i < amplitude.size(); ++i)
    amplitude[i] = std::sqrt(power(fundamental * std::sqrt(static_cast<double>(i))) / volume);

  auto delta = fft.forward(white_noise(fft, seed, universe));
  fft.for_each_mode([&](std::size_t offset, std::int64_t kx, std::int64_t ky, std::int64_t kz) {
    delta[offset] *= amplitude[static_cast<std::size_t>(kx * kx + ky * ky + kz * kz)];
  });
  return delta;
}

Draw draw_parameters(std::uint64_t seed, std::uint64_t universe) {
  constexpr std::array<double, 4> centre{0.30, 0.80, 0.96, 70};
  const auto random = generator(seed, universe, Purpose::parameters);
  Draw draw;
  for (std::size_t i = 0; i < 4; ++i) {
    draw.unit[i] = static_cast<float>(2 * random.uniform(i) - 1);
    draw.physical[i] = static_cast<float>((1 + 0.1 * static_cast<double>(draw.unit[i])) * centre[i]);
  }
  const auto value = [&](std::size_t i) { return (1 + 0.1 * static_cast<double>(draw.unit[i])) * centre[i]; };
  draw.cosmology = {value(0), value(1), value(2), value(3), 0.045};
  return draw;
}

}  // namespace mpigrad::universe
