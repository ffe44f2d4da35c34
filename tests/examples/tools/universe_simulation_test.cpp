// Simulations of universes: the same on any number of ranks, drawn parameters, particles in cells, and the layout of files.

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/hdf5/hdf5_file.h"
#include "comm/transport/transport.h"
#include "examples/tools/universe/cosmology.h"
#include "examples/tools/universe/fft.h"
#include "examples/tools/universe/field.h"
#include "examples/tools/universe/particles.h"
#include "examples/tools/universe/simulation.h"
#include "framework/base/error.h"
#include "tests/examples/tools/universe_reference.h"
#include "tests/support/files.h"
#include "tests/support/shared_data.h"

namespace mpigrad::universe {

namespace {

using Box = std::vector<std::int64_t>;

// Runs on `ranks` ranks in threads and puts the slabs of what `make` returns together.
template <class T, class Make>
std::vector<T> assemble(int ranks, std::int64_t n, Make make) {
  std::map<int, std::vector<T>> slabs;
  std::mutex mutex;
  run_threads(ranks, [&](const std::shared_ptr<Transport>& transport) {
    const SlabFft fft(transport, n);
    const auto slab = make(fft);
    const std::lock_guard lock(mutex);
    slabs[transport->rank()].assign(slab.begin(), slab.end());
  });
  std::vector<T> all;
  for (const auto& [rank, slab] : slabs) all.insert(all.end(), slab.begin(), slab.end());
  return all;
}

}  // namespace

TEST_CASE("universe: the same field and the same counts on any number of ranks, bit for bit") {
  const LinearPower power(Spectrum::eh, reference);
  for (const std::int64_t n : {16, 15}) {
    const auto field = [&](const SlabFft& fft) {
      return fft.inverse(gaussian_field(
          fft, [&](double k) { return power(k); }, 4, 11, 5));
    };
    const auto counts = [&](const SlabFft& fft) { return simulate(fft, {.size = n, .cell = 4, .seed = 11}, 5).counts; };
    const auto one_field = assemble<double>(1, n, field);
    const auto one_counts = assemble<std::int16_t>(1, n, counts);
    for (const int ranks : {2, 3, 4, 18}) {
      CHECK(assemble<double>(ranks, n, field) == one_field);
      CHECK(assemble<std::int16_t>(ranks, n, counts) == one_counts);
    }
    std::array<std::int64_t, 4> total{};
    for (std::size_t i = 0; i < one_counts.size(); ++i) total[i % 4] += one_counts[i];
    for (const auto each : total) CHECK(each == n * n * n);
  }
}

TEST_CASE("universe: seeds and numbers make different universes, parameters stay in range") {
  run_threads(1, [&](const std::shared_ptr<Transport>& transport) {
    const SlabFft fft(transport, 4);
    CHECK(white_noise(fft, 1, 0) == white_noise(fft, 1, 0));
    CHECK(white_noise(fft, 1, 0) != white_noise(fft, 2, 0));
    CHECK(white_noise(fft, 1, 0) != white_noise(fft, 1, 1));
  });
  std::array<double, 4> mean{};
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto draw = draw_parameters(9, i);
    for (std::size_t p = 0; p < 4; ++p) {
      CHECK(std::abs(draw.unit[p]) <= 1);
      mean[p] += static_cast<double>(draw.unit[p]) / 1000;
    }
    CHECK(draw.cosmology.sigma_8 == doctest::Approx((1 + 0.1 * static_cast<double>(draw.unit[1])) * 0.8));
    CHECK(draw.physical[3] == doctest::Approx((1 + 0.1 * static_cast<double>(draw.unit[3])) * 70));
    CHECK(draw.cosmology.omega_b == 0.045);
  }
  for (const double each : mean) CHECK(std::abs(each) < 0.08);  // 4 standard deviations
}

TEST_CASE("universe: particles go to the nearest cell, around the box") {
  for (const int ranks : {1, 3, 9})
    run_threads(ranks, [&](const std::shared_ptr<Transport>& transport) {
      const std::int64_t n = 8;
      const SlabFft fft(transport, n);
      // Every particle of plane x = 0 moves by -0.6 cells in x and +3.4 in y; growth 2 doubles psi1 and quadruples psi2.
      Displacement psi1, psi2;
      for (std::size_t axis = 0; axis < 3; ++axis) psi1[axis].assign(fft.real_size(), 0), psi2[axis].assign(fft.real_size(), 0);
      if (fft.x_range().begin == 0)
        for (std::size_t i = 0; i < std::min<std::size_t>(fft.real_size(), n * n); ++i)
          psi1[0][i] = -0.3 / 8, psi1[1][i] = 0.7 / 8, psi2[1][i] = 0.5 / 8;
      const auto counts = count_particles(fft, psi1, psi2, 2);
      for (std::size_t i = 0; i < counts.size(); ++i) {
        const auto x = fft.x_range().begin + static_cast<std::int64_t>(i) / (n * n);
        CHECK(counts[i] == (x == 0 ? 0 : x == n - 1 ? 2 : 1));
      }
    });
  std::vector<std::int16_t> out(4);
  CHECK_THROWS_AS(store_channel(std::vector<std::int32_t>{32768}, out, 4, 0), Error);
}

TEST_CASE("universe: files have CosmoFlow's layout") {
  if (testing::without_hdf5("universe files")) return;
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("mpigrad_universe_test_{}", getpid());
  std::filesystem::create_directories(folder);
  const Simulation simulation{.size = 16, .cell = 4, .seed = 3};
  run_threads(2, [&](const std::shared_ptr<Transport>& transport) {
    const SlabFft fft(transport, simulation.size);
    const auto universe = simulate(fft, simulation, 12);
    write_universe(folder / file_name(12), false, fft, simulation, universe);
    CHECK_THROWS_AS(write_universe(folder / file_name(12), false, fft, simulation, universe), Error);
  });
  const Hdf5Reader reader(folder / "universe_00012.hdf5");
  const auto full = reader.describe("full");
  CHECK((full.shape == Shape{16, 16, 16, 4}));
  CHECK(full.stored == "int16");
  for (const char* name : {"unitPar", "physPar"}) {
    CHECK((reader.describe(name).shape == Shape{4}));
    CHECK(reader.describe(name).stored == "float32");
  }
  CHECK(reader.read_strings("namePar") == std::vector<std::string>{"Omega_m", "sigma_8", "N_spec", "H_0"});
  const auto unit = reader.read<float>("unitPar"), physical = reader.read<float>("physPar");
  const std::array<double, 4> centre{0.30, 0.80, 0.96, 70};
  for (std::size_t p = 0; p < 4; ++p)
    CHECK(physical[p] == doctest::Approx((1 + 0.1 * static_cast<double>(unit[p])) * centre[p]).epsilon(1e-6));
  const auto counts = reader.read<std::int16_t>("full");
  // Structure grows: the variance of the counts rises from channel to channel (z = 3 to 0).
  std::array<double, 4> square{};
  for (std::size_t i = 0; i < counts.size(); ++i) square[i % 4] += static_cast<double>(counts[i]) * counts[i];
  CHECK(std::is_sorted(square.begin(), square.end()));
  CHECK(reader.number_attribute("/", "box") == 64);

  if (const auto path = testing::shared_data("cosmo/cosmoflow_format/cosmoflow_4cube_real_excerpt.json"); !path.empty()) {
    // A corner of a real sample travels through the same layout: channels last.
    const auto real = nlohmann::json::parse(std::ifstream(path));
    const auto last = real["dhwc_4x4x4x4"].get<std::vector<double>>(), first = real["cdhw_4x4x4x4"].get<std::vector<double>>();
    std::vector<std::int16_t> values(last.begin(), last.end());
    Hdf5Writer writer(folder / "real.hdf5", false);
    writer.write("full", {4, 4, 4, 4}, DType::int16, values.data());
    writer.write<float>("unitPar", real["unitPar"].get<std::vector<float>>());
    writer.commit();
    const Hdf5Reader excerpt(folder / "real.hdf5");
    CHECK(excerpt.describe("full").stored == full.stored);
    CHECK(excerpt.describe("unitPar").shape == reader.describe("unitPar").shape);
    for (std::int64_t channel = 0; channel < 4; ++channel) {
      std::vector<double> one(64);
      excerpt.read("full", Box{0, 0, 0, channel}, Box{4, 4, 4, channel + 1}, DType::float64, one.data());
      CHECK(std::equal(one.begin(), one.end(), first.begin() + 64 * channel));
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace mpigrad::universe
