// Fields of simulated universes: the distributed transform, displacements of first and second order, and the spectrum that was
// asked for.

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numbers>
#include <utility>
#include <vector>

#include "comm/hdf5/hdf5_file.h"
#include "comm/transport/transport.h"
#include "examples/tools/universe/cosmology.h"
#include "examples/tools/universe/displacement.h"
#include "examples/tools/universe/fft.h"
#include "examples/tools/universe/field.h"
#include "tests/examples/tools/universe_reference.h"
#include "tests/support/shared_data.h"
#include "tests/support/skip.h"

namespace mpigrad::universe {

namespace {

using Box = std::vector<std::int64_t>;

// The field f(x, y, z), positions in units of the box, on this rank's cells.
template <class F>
RealField sample(const SlabFft& fft, F f) {
  RealField field;
  const auto n = fft.n();
  for (std::int64_t x = fft.x_range().begin; x < fft.x_range().end; ++x)
    for (std::int64_t y = 0; y < n; ++y)
      for (std::int64_t z = 0; z < n; ++z)
        field.push_back(f(static_cast<double>(x) / static_cast<double>(n), static_cast<double>(y) / static_cast<double>(n),
                          static_cast<double>(z) / static_cast<double>(n)));
  return field;
}

double largest_difference(const RealField& a, const RealField& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

TEST_CASE("universe: the distributed transform is the Fourier sum, its inverse undoes it") {
  for (const std::int64_t n : {4, 5, 6})
    for (const int ranks : {1, 2, 3, 7})
      run_threads(ranks, [&](const std::shared_ptr<Transport>& transport) {
        const SlabFft fft(transport, n);
        const auto noise = white_noise(fft, 3, 0);
        const auto transformed = fft.forward(noise);
        CHECK(largest_difference(fft.inverse(transformed), noise) < 1e-14);
        std::vector<double> all(static_cast<std::size_t>(n * n * n));
        std::vector<std::int64_t> counts;
        for (int r = 0; r < ranks; ++r) counts.push_back(balanced_block(n, ranks, r).size() * n * n);
        transport->allgather(noise.data(), all.data(), counts, DType::float64);
        double worst = 0;
        fft.for_each_mode([&](std::size_t offset, std::int64_t kx, std::int64_t ky, std::int64_t kz) {
          std::complex<double> sum = 0;
          for (std::int64_t i = 0; i < n * n * n; ++i) {
            const std::int64_t phase = kx * (i / (n * n)) + ky * (i / n % n) + kz * (i % n);
            sum += all[static_cast<std::size_t>(i)] *
                   std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(phase) / static_cast<double>(n));
          }
          worst = std::max(worst, std::abs(sum - transformed[offset]));
        });
        CHECK(worst < 1e-11);
      });
}

TEST_CASE("universe: first order matches the reference displacement to 1e-12 of the box") {
  const auto path = testing::shared_data("cosmo/monofonic/test_1lpt_sc_generic.hdf5");
  if (path.empty() || !hdf5_available()) return testing::skip_test("universe Zel'dovich", testing::no_shared_data);
  for (const int ranks : {1, 3})
    run_threads(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const SlabFft fft(transport, 32);
      const Hdf5Reader reader(path);
      const Box begin{fft.x_range().begin, 0, 0}, end{fft.x_range().end, 32, 32};
      const auto read = [&](const char* name) {
        RealField field(fft.real_size());
        reader.read(name, begin, end, DType::float64, field.data());
        return field;
      };
      const auto psi = first_order(fft, fft.forward(read("DM_delta")));
      CHECK(largest_difference(psi[0], read("DM_dx")) < 1e-14);
      CHECK(largest_difference(psi[1], read("DM_dy")) < 1e-14);
      CHECK(largest_difference(psi[2], read("DM_dz")) < 1e-14);
    });
}

TEST_CASE("universe: second order of two crossed plane waves, de-aliased") {
  // delta = a cos(p x) + b cos(q x) has the source (1 - (p.q)^2 / (p^2 q^2)) a b / 2 (cos((p+q) x) + cos((p-q) x)), and a term
  // s cos(K x) of it moves by -(3/7) s K / K^2 sin(K x).
  using Wave = std::array<double, 3>;
  const auto dot = [](const Wave& u, const Wave& v) { return u[0] * v[0] + u[1] * v[1] + u[2] * v[2]; };
  const double a = 0.3, b = 0.7, turn = 2 * std::numbers::pi;
  for (const std::int64_t n : {12, 13})
    for (const auto& [p, q] : {std::pair<Wave, Wave>{{1, 2, 0}, {0, 1, -2}},
                               {{3, 0, 0}, {0, 2, 0}},
                               {{2, 1, 1}, {4, 2, 2}},   // parallel: nothing
                               {{5, 0, 1}, {4, 3, 0}}})  // the sum lies beyond the grid: only the difference remains
      for (const int ranks : {1, 2, 5})
        run_threads(ranks, [&, p = p, q = q](const std::shared_ptr<Transport>& transport) {
          const SlabFft fft(transport, n);
          const auto delta = fft.forward(sample(fft, [&](double x, double y, double z) {
            return a * std::cos(turn * dot(p, {x, y, z})) + b * std::cos(turn * dot(q, {x, y, z}));
          }));
          const auto psi = second_order(fft, delta);
          const double strength = (1 - std::pow(dot(p, q), 2) / (dot(p, p) * dot(q, q))) * a * b / 2;
          for (std::size_t axis = 0; axis < 3; ++axis) {
            const auto expected = sample(fft, [&](double x, double y, double z) {
              double value = 0;
              for (const double sign : {1.0, -1.0}) {
                const Wave k{p[0] + sign * q[0], p[1] + sign * q[1], p[2] + sign * q[2]};
                const bool resolved =
                    std::all_of(k.begin(), k.end(), [&](double each) { return 2 * std::abs(each) < static_cast<double>(n); });
                if (dot(k, k) > 0 && resolved)
                  value -= 3.0 / 7.0 * strength * k[axis] / (turn * dot(k, k)) * std::sin(turn * dot(k, {x, y, z}));
              }
              return value;
            });
            CHECK(largest_difference(psi[axis], expected) < 1e-15);
          }
        });
}

TEST_CASE("universe: fields take the memory of earlier ones and not fresh pages") {
  const auto faults_of_a_field = [] {
    rusage before{}, after{};
    getrusage(RUSAGE_THREAD, &before);
    const RealField field(std::size_t{1} << 23, 1.0);
    getrusage(RUSAGE_THREAD, &after);
    return field.back() == 1 ? after.ru_minflt - before.ru_minflt : -1;
  };
  faults_of_a_field();
  const auto faults = faults_of_a_field();
  CHECK(faults >= 0);
  CHECK(faults < 1000);  // fresh pages of 4 KiB would be 16384
}

TEST_CASE("universe: the mean of the field moves nothing") {
  run_threads(1, [&](const std::shared_ptr<Transport>& transport) {
    const SlabFft fft(transport, 8);
    const auto noise = white_noise(fft, 1, 1);
    auto shifted = noise;
    for (auto& value : shifted) value += 5;
    const auto without = second_order(fft, fft.forward(noise)), with = second_order(fft, fft.forward(shifted));
    for (std::size_t axis = 0; axis < 3; ++axis) CHECK(largest_difference(without[axis], with[axis]) < 1e-13);
  });
}

TEST_CASE("universe: the spectrum of the field is the one asked for") {
  const std::int64_t n = 32;
  const double cell = 4, box = cell * static_cast<double>(n), fundamental = 2 * std::numbers::pi / box;
  const LinearPower power(Spectrum::eh, reference);
  std::vector<double> sum(8), modes(8);
  run_threads(1, [&](const std::shared_ptr<Transport>& transport) {
    const SlabFft fft(transport, n);
    for (std::uint64_t universe = 0; universe < 4; ++universe) {
      const auto delta = gaussian_field(
          fft, [&](double k) { return power(k); }, cell, 77, universe);
      // From position space and back, so that what is measured is the field itself.
      const auto measured = fft.forward(fft.inverse(delta));
      fft.for_each_mode([&](std::size_t offset, std::int64_t kx, std::int64_t ky, std::int64_t kz) {
        const double k = std::sqrt(static_cast<double>(kx * kx + ky * ky + kz * kz));
        if (k == 0 || kz == 0 || fft.is_nyquist(kz) || k > 15.99) return;  // planes that hold modes twice
        const double estimate = std::norm(measured[offset]) * std::pow(box, 3) / std::pow(static_cast<double>(n), 6);
        const auto bin = static_cast<std::size_t>(k / 2);
        sum[bin] += estimate / power(fundamental * k), modes[bin] += 1;
      });
    }
  });
  for (std::size_t bin = 0; bin < 8; ++bin) {
    CAPTURE(bin);
    CHECK(std::abs(sum[bin] / modes[bin] - 1) < 4 / std::sqrt(modes[bin]));
  }
}

}  // namespace mpigrad::universe
