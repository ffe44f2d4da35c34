#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numbers>
#include <sstream>

#include "comm/hdf5/hdf5_file.h"
#include "examples/tools/universe/particles.h"
#include "examples/tools/universe/simulation.h"
#include "tests/support/files.h"
#include "tests/support/shared_data.h"
#include "tests/support/skip.h"

namespace mpigrad::universe {

namespace {

using Box = std::vector<std::int64_t>;

// Rows of numbers; lines that do not start with one are left out.
std::vector<std::vector<double>> read_table(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::vector<double>> rows;
  for (std::string line; std::getline(file, line);) {
    std::istringstream stream(line);
    std::vector<double> row;
    for (double value = 0; stream >> value;) row.push_back(value);
    if (!row.empty()) rows.push_back(row);
  }
  return rows;
}

constexpr Cosmology reference{.omega_m = 0.30, .sigma_8 = 0.8, .spectral_index = 0.96, .hubble = 70, .omega_b = 0.05};

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

TEST_CASE("universe: power spectra match tables of another code to 1e-5 at all redshifts") {
  for (const auto spectrum : {Spectrum::bbks, Spectrum::eh_nowiggle}) {
    const std::string name = spectrum == Spectrum::bbks ? "model1_pk.txt" : "model1_nowig_pk_eh.txt";
    const auto path = testing::shared_data("cosmo/pk/ccl/" + name);
    if (path.empty()) return testing::skip_test("universe power spectra", testing::no_shared_data);
    const LinearPower power(spectrum, reference);
    double worst = 0;
    int values = 0;
    for (const auto& row : read_table(path))
      for (std::size_t z = 0; z + 1 < row.size(); ++z, ++values)
        worst = std::max(worst, std::abs(power(row[0], static_cast<double>(z)) / row[z + 1] - 1));
    CAPTURE(name);
    CHECK(values == 41 * 6);
    CHECK(worst < 1e-6);
  }
}

TEST_CASE("universe: growth matches a table of another code, and its limits") {
  CHECK(growth({.omega_m = 1}, 1) == doctest::Approx(0.5).epsilon(1e-12));
  CHECK(growth({.omega_m = 0.3}, 999) == doctest::Approx(1e-3).epsilon(1e-8));
  const auto path = testing::shared_data("cosmo/pk/ccl/model1_gf.txt");
  if (path.empty()) return testing::skip_test("universe growth", testing::no_shared_data);
  const auto rows = read_table(path);
  CHECK(rows.size() == 6);
  for (const auto& row : rows) CHECK(growth(reference, row[0]) == doctest::Approx(row[1]).epsilon(1e-7));
}

TEST_CASE("universe: sigma_8 is the integral over the spectrum") {
  for (const auto spectrum : {Spectrum::bbks, Spectrum::eh, Spectrum::eh_nowiggle}) {
    const LinearPower power(spectrum, reference);
    double sum = 0;  // by another rule in another variable: midpoints in k
    const double step = 1e-4;
    for (double k = step / 2; k < 20; k += step) {
      const double x = 8 * k, w = 3 * (std::sin(x) - x * std::cos(x)) / (x * x * x);
      sum += step * k * k * power(k) * w * w;
    }
    CHECK(std::sqrt(sum / 2) / std::numbers::pi == doctest::Approx(0.8).epsilon(1e-5));
  }
}

TEST_CASE("universe: oscillations wind about the fit without them") {
  const LinearPower with(Spectrum::eh, reference), without(Spectrum::eh_nowiggle, reference);
  int crossings = 0;
  double previous = 0;
  for (double k = 0.02; k < 0.4; k *= 1.01) {
    const double ratio = with(k) / without(k);
    CHECK(std::abs(ratio - 1) < 0.08);
    const double sign = ratio > 1 ? 1 : -1;
    crossings += previous != 0 && sign != previous ? 1 : 0;
    previous = sign;
  }
  CHECK(crossings >= 3);
}

TEST_CASE("universe: the transfer function with oscillations agrees with an independent implementation") {
  // colossus 1.3, modelEisenstein98 at h = 0.7, Omega_m = 0.3, Omega_b = 0.05, 2.725 K
  for (const auto& [k, value] : {std::pair{1e-4, 0.9999069377840821},
                                 {1e-3, 0.992258265080966},
                                 {1e-2, 0.7799501832102854},
                                 {0.03, 0.43116207723270167},
                                 {0.05, 0.2677799842107241},
                                 {0.08, 0.17520877558479425},
                                 {0.1, 0.1286604377381438},
                                 {0.2, 0.05413086313916116},
                                 {0.5, 0.013825564097598421},
                                 {1.0, 0.004590609165560459},
                                 {10.0, 8.782524461765674e-05}})
    CHECK(transfer(Spectrum::eh, reference, 2.725, k) == doctest::Approx(value).epsilon(1e-10));
}

TEST_CASE("universe: parameters without meaning are refused") {
  CHECK_THROWS_AS(LinearPower(Spectrum::eh, {.omega_m = 1.5}), Error);
  CHECK_THROWS_AS(LinearPower(Spectrum::eh, {.omega_m = 0.3, .omega_b = 0.3}), Error);
  CHECK_THROWS_AS(LinearPower(Spectrum::eh, {.sigma_8 = -1}), Error);
  CHECK_THROWS_AS(LinearPower(Spectrum::eh, {.hubble = std::nan("")}), Error);
  CHECK_THROWS_AS(growth({}, -1), Error);
  CHECK_THROWS_AS(spectrum_of("camb"), Error);
}

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
