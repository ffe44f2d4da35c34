// Simulated chains, reading of contact maps, and the scores of an autoencoder of them.

#include <doctest/doctest.h>

#include <cmath>

#include "comm/hdf5/hdf5_tensor.h"
#include "examples/tools/folding/chain.h"
#include "examples/trainers/contact_maps/maps.h"
#include "examples/trainers/contact_maps/scores.h"
#include "models/data/sources/npy.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::testing;

TEST_CASE("folding: forces are the gradient of the energy, which the native structure nearly minimises") {
  for (const auto* name : {"hairpin", "sheet"}) {
    const auto native = folding::native_structure(name, 25);
    REQUIRE(native.contacts.size() > 20);
    const folding::Energy energy(native);
    std::vector<folding::Position> gradient, unused;
    CHECK(energy(native.positions, unused) < -0.4 * static_cast<double>(native.contacts.size()));
    auto x = native.positions;
    const Philox random{3, 4};
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t d = 0; d < 3; ++d) x[i][d] += 0.2 * random.normal(3 * i + d);
    energy(x, gradient);
    for (const std::size_t i : {std::size_t{0}, std::size_t{7}, std::size_t{12}, std::size_t{24}})
      for (std::size_t d = 0; d < 3; ++d) {
        constexpr double step = 1e-5;
        auto left = x, right = x;
        left[i][d] -= step, right[i][d] += step;
        const double slope = (energy(right, unused) - energy(left, unused)) / (2 * step);
        CHECK(gradient[i][d] == doctest::Approx(slope).epsilon(1e-6).scale(1));
      }
  }
  CHECK(error_text([] { folding::native_structure("knot", 25); }) == "[folding] structures are hairpin and sheet, not 'knot'");
  CHECK(error_text([] { folding::native_structure("sheet", 23); }) == "[folding] a sheet has at least 24 residues, got 23");
}

TEST_CASE("folding: chains are reproducible, cold ones fold, hot ones unfold") {
  folding::Simulation s{.frames = 40, .steps_per_frame = 100, .temperature = 0.68};
  const auto one = folding::simulate(s, {1, 2}), again = folding::simulate(s, {1, 2}), other = folding::simulate(s, {1, 3});
  CHECK(one.maps == again.maps);
  CHECK(one.native == again.native);
  CHECK(one.maps != other.maps);
  const auto contacts = folding::native_structure("hairpin", 21).contacts;
  for (std::size_t f = 0; f < 40; ++f) {
    std::size_t formed = 0;
    for (const auto& [i, j] : contacts) formed += one.maps[f * 441 + i * 21 + j];
    CHECK(one.native[f] == doctest::Approx(static_cast<double>(formed) / static_cast<double>(contacts.size())));
    for (std::size_t i = 0; i < 21; ++i) {
      CHECK(one.maps[f * 441 + i * 21 + i] == 1);
      for (std::size_t j = 0; j < i; ++j) CHECK(one.maps[f * 441 + i * 21 + j] == one.maps[f * 441 + j * 21 + i]);
    }
  }
  const auto mean = [&](double temperature) {
    s.temperature = temperature, s.steps_per_frame = 400;
    double sum = 0;
    for (const auto q : folding::simulate(s, {1, 2}).native) sum += q;
    return sum / 40;
  };
  CHECK(mean(0.5) > mean(1.5) + 0.2);
}

TEST_CASE("contact maps: HDF5 and .npy of any published shape are padded to even sides") {
  const Folder folder;
  std::vector<double> values(4 * 9);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 4 == 0 ? 1 : 0;
  const auto native = from_vector({4}, {0, 0.25, 0.5, 1}), chain = from_vector({4}, {7, 7, 9, 9}, DType::int64);
  const auto maps = [&](const Shape& shape, DType dtype) { return from_vector(shape, values, dtype); };
  write_hdf5(folder / "a.h5", {{"contact_maps", maps({4, 3, 3}, DType::uint8)}, {"native", native}, {"chain", chain}});
  write_hdf5(folder / "b.h5", {{"maps", maps({4, 1, 3, 3}, DType::float64)}});
  write_npy(folder / "c.npy", maps({4, 3, 3, 1}, DType::float32));
  write_npy(folder / "d.npy", maps({4, 9}, DType::int64));
  write_npy(folder / "native.npy", native);
  const auto check = [&](const contacts::ContactMaps& found, std::size_t numbers) {
    CHECK(found.residues == 3);
    CHECK(found.side == 4);
    REQUIRE(found.source->size() == 4);
    CHECK(found.source->extents() == Shape{1, 4, 4});
    CHECK(found.native.size() == numbers);
    for (std::int64_t m = 0; m < 4; ++m) {
      const auto x = found.source->values(m, found.source->whole());
      CHECK(x == found.source->targets(m));
      for (std::size_t r = 0; r < 4; ++r)
        for (std::size_t c = 0; c < 4; ++c)
          CHECK(x[r * 4 + c] == (r < 3 && c < 3 ? values[static_cast<std::size_t>(m) * 9 + r * 3 + c] : 0));
    }
  };
  const auto a = contacts::read_maps(folder / "a.h5", {});
  check(a, 4);
  CHECK(a.chain == std::vector<std::int64_t>{7, 7, 9, 9});
  check(contacts::read_maps(folder / "b.h5", {.maps = "maps"}), 0);
  check(contacts::read_maps(folder / "c.npy", {}), 0);
  check(contacts::read_maps(folder / "d.npy", {.native = (folder / "native.npy").string()}), 4);

  values[5] = 2;
  write_npy(folder / "e.npy", maps({4, 3, 3}, DType::float32));
  const auto refused = [&](const std::string& part, const std::function<void()>& body) {
    const auto text = error_text(body);
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  refused("map 0 has 2 at row 1, column 2", [&] { contacts::read_maps(folder / "e.npy", {}); });
  refused("maps are [n, R, R] or [n, R R], not [4]", [&] { contacts::read_maps(folder / "native.npy", {}); });
  refused("must be a .npy file, too", [&] { contacts::read_maps(folder / "c.npy", {}, true); });
  refused("native", [&] { contacts::read_maps(folder / "b.h5", {.maps = "maps"}, true); });
}

TEST_CASE("contact maps: whole chains are kept") {
  const auto split = contacts::split_chains({3, 3, 5, 1, 5, 1, 2}, 0.5);
  CHECK(split.kept == std::vector<std::int64_t>{0, 1, 2, 4});
  CHECK(split.training == std::vector<std::int64_t>{3, 5, 6});
  const auto one = contacts::split_chains({0, 0, 0, 0, 0}, 0.2);
  CHECK(one.kept == std::vector<std::int64_t>{4});
  CHECK(error_text([] {
          contacts::split_chains({1, 2}, 0.9);
        }) == "[contact_maps] of 2 chains 2 are kept; none is left for training");
}

TEST_CASE("contact maps: scores of contacts and of a linear fit") {
  // One map of 4 x 4 of which only row 0, column 3 is counted, three times: found, missed, invented.
  Predictions p{.outputs = 16 + 2, .targets = 16, .samples = {0, 1, 2}, .predicted = {}, .truth = {}};
  p.predicted.assign(3 * 18, -1), p.truth.assign(3 * 16, 0);
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) p.truth[i * 16 + 3] = 1;
  for (const std::size_t i : {std::size_t{0}, std::size_t{2}}) p.predicted[i * 18 + 3] = 2;
  for (std::size_t i = 0; i < 3; ++i) p.predicted[i * 18 + 16] = static_cast<double>(i) + 0.5;
  p.truth[0] = 1, p.predicted[0] = 2;  // of a residue with itself
  const auto score = contacts::contact_score(p, 4);
  CHECK(score.found == 0.5);
  CHECK(score.right == 0.5);
  CHECK(score.all_found == doctest::Approx(2.0 / 3));
  CHECK(score.cells == doctest::Approx(46.0 / 48));
  CHECK(contacts::latent_means(p, 1) == std::vector<double>{0.5, 1.5, 2.5});

  std::vector<double> z, q, other, expected;
  const Philox random{1, 1};
  for (std::uint64_t i = 0; i < 200; ++i) {
    const double a = random.normal(2 * i), b = random.normal(2 * i + 1);
    auto& to = i < 150 ? z : other;
    to.insert(to.end(), {a, b});
    (i < 150 ? q : expected).push_back(0.3 + 2 * a - b);
  }
  CHECK(contacts::linear_r2(z, q, other, expected) == doctest::Approx(1).epsilon(1e-6));
  auto noisy = expected;
  for (std::size_t i = 0; i < noisy.size(); ++i) noisy[i] += 2 * random.normal(1000 + i);
  const double r2 = contacts::linear_r2(z, q, other, noisy);
  CHECK((r2 > 0.3 && r2 < 0.8));
  CHECK(std::isnan(contacts::linear_r2(z, q, other, std::vector<double>(50, 1))));
}
