// Scores of segmentation: by hand, and against references that examine every pair of cells.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "framework/tensor/random.h"
#include "models/evaluate/segmentation_metrics.h"
#include "tests/support/errors.h"

using namespace mpigrad;
using namespace mpigrad::segmentation;
using namespace mpigrad::testing;

namespace {

using Labels = std::vector<std::int32_t>;
using Position = std::array<std::int64_t, 3>;

constexpr std::array<double, 3> uneven{2.5, 0.7, 1.1};

struct Volume {
  Shape extents;
  Labels labels = Labels(static_cast<std::size_t>(extents.elements()));

  std::size_t cell(const Position& at) const {
    return static_cast<std::size_t>((at[0] * extents[1] + at[1]) * extents[2] + at[2]);
  }
  bool contains(const Position& at) const {
    for (int a = 0; a < 3; ++a)
      if (at[static_cast<std::size_t>(a)] < 0 || at[static_cast<std::size_t>(a)] >= extents[a]) return false;
    return true;
  }
  // No label outside the volume.
  std::int32_t operator()(const Position& at) const { return contains(at) ? labels[cell(at)] : -1; }
  std::int32_t& operator()(const Position& at) { return labels[cell(at)]; }
  std::vector<Position> positions() const {
    std::vector<Position> result;
    for (std::int64_t d = 0; d < extents[0]; ++d)
      for (std::int64_t h = 0; h < extents[1]; ++h)
        for (std::int64_t w = 0; w < extents[2]; ++w) result.push_back({d, h, w});
    return result;
  }
};

Volume with_cells(const Shape& extents, const std::vector<Position>& cells, std::int32_t label = 1) {
  Volume volume{extents};
  for (const auto& at : cells) volume(at) = label;
  return volume;
}

// A box of cells from `first` (included) to `end` (excluded).
Volume with_box(const Shape& extents, const Position& first, const Position& end) {
  Volume volume{extents};
  for (const auto& at : volume.positions())
    if (at[0] >= first[0] && at[0] < end[0] && at[1] >= first[1] && at[1] < end[1] && at[2] >= first[2] && at[2] < end[2])
      volume(at) = 1;
  return volume;
}

// Independent cells; `background`: the fraction of cells of class 0.
Volume scattered(const Shape& extents, std::uint64_t seed, double background, std::int64_t classes = 2) {
  Volume volume{extents};
  const Philox random{.key = seed};
  for (std::size_t i = 0; i < volume.labels.size(); ++i)
    if (random.uniform(2 * i) >= background)
      volume.labels[i] = static_cast<std::int32_t>(1 + random.below(2 * i + 1, static_cast<std::uint64_t>(classes - 1)));
  return volume;
}

// An ellipsoid at a random place, often beyond the border, with holes.
Volume blob(const Shape& extents, std::uint64_t seed) {
  auto volume = scattered(extents, seed, 0.1);
  const Philox random{.key = seed, .stream = 1};
  for (const auto& at : volume.positions()) {
    double sum = 0;
    for (std::size_t a = 0; a < 3; ++a) {
      const auto extent = static_cast<double>(extents[static_cast<int>(a)]);
      const double centre = extent * random.uniform(a), radius = 1 + extent * (0.1 + 0.4 * random.uniform(a + 3));
      const double offset = (static_cast<double>(at[a]) - centre) / radius;
      sum += offset * offset;
    }
    if (sum > 1) volume(at) = 0;
  }
  return volume;
}

// Corners of cells, each with a quarter, as a vector, of each face between a cell with the label and one without that meets
// there.
std::map<Position, double> brute_force_surface(const Volume& volume, std::int32_t label, const std::array<double, 3>& spacing) {
  struct Quarters {
    std::array<double, 3> vector{};
    double sum = 0;
  };
  std::map<Position, Quarters> corners;
  for (const auto& at : volume.positions()) {
    if (volume(at) != label) continue;
    for (std::size_t axis = 0; axis < 3; ++axis)
      for (const std::int64_t step : {-1, 1}) {
        auto neighbour = at;
        neighbour[axis] += step;
        if (volume(neighbour) == label) continue;
        const std::size_t one = (axis + 1) % 3, two = (axis + 2) % 3;
        for (const std::int64_t i : {0, 1})
          for (const std::int64_t j : {0, 1}) {
            auto corner = at;
            corner[axis] += step > 0, corner[one] += i, corner[two] += j;
            auto& quarters = corners[corner];
            const double quarter = spacing[one] * spacing[two] / 4;
            quarters.vector[axis] += static_cast<double>(step) * quarter, quarters.sum += quarter;
          }
      }
  }
  std::map<Position, double> areas;
  for (const auto& [corner, quarters] : corners) {
    const auto& v = quarters.vector;
    const double norm = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    areas[corner] = norm > 1e-12 * quarters.sum ? norm : quarters.sum;
  }
  return areas;
}

constexpr double tolerance = 1.2;

// Compares every element of one surface with every element of the other: the distance of 95 % of the area, the area within the
// tolerance, and the area.
std::array<double, 3> brute_force_direction(const std::map<Position, double>& from, const std::map<Position, double>& to,
                                            const std::array<double, 3>& spacing) {
  std::vector<std::pair<double, double>> distances;
  double area = 0, within = 0;
  for (const auto& [a, part] : from) {
    double nearest = std::numeric_limits<double>::infinity();
    for (const auto& [b, other] : to) {
      double square = 0;
      for (std::size_t i = 0; i < 3; ++i) square += std::pow(spacing[i] * static_cast<double>(a[i] - b[i]), 2);
      nearest = std::min(nearest, std::sqrt(square));
    }
    distances.emplace_back(nearest, part);
    area += part, within += nearest <= tolerance ? part : 0;
  }
  std::sort(distances.begin(), distances.end());
  double sum = 0, percentile = 0;
  for (const auto& [distance, part] : distances) {
    sum += part, percentile = distance;
    if (sum >= 0.95 * area) break;
  }
  return {percentile, within, area};
}

std::optional<SurfaceAgreement> brute_force(const Volume& truth, const Volume& predicted, std::int32_t label,
                                            const std::array<double, 3>& spacing) {
  const auto a = brute_force_surface(truth, label, spacing), b = brute_force_surface(predicted, label, spacing);
  if (a.empty() && b.empty()) return std::nullopt;
  const auto& e = truth.extents;
  if (a.empty() || b.empty())
    return SurfaceAgreement{std::hypot(spacing[0] * static_cast<double>(e[0]), spacing[1] * static_cast<double>(e[1]),
                                       spacing[2] * static_cast<double>(e[2])),
                            0};
  const auto there = brute_force_direction(a, b, spacing), back = brute_force_direction(b, a, spacing);
  return SurfaceAgreement{std::max(there[0], back[0]), (there[1] + back[1]) / (there[2] + back[2])};
}

std::optional<SurfaceAgreement> agreement(const Volume& truth, const Volume& predicted, std::int32_t label = 1,
                                          const std::array<double, 3>& spacing = uneven) {
  return surface_agreement(truth.labels, predicted.labels, truth.extents, label, spacing, tolerance);
}
double distance(const Volume& truth, const Volume& predicted, std::int32_t label = 1,
                const std::array<double, 3>& spacing = uneven) {
  return agreement(truth, predicted, label, spacing).value().hausdorff95;
}

void check_agreement(const Volume& truth, const Volume& predicted, std::int32_t label = 1,
                     const std::array<double, 3>& spacing = uneven) {
  const auto expected = brute_force(truth, predicted, label, spacing), value = agreement(truth, predicted, label, spacing);
  INFO(to_string(truth.extents), ", label ", label);
  REQUIRE(value.has_value() == expected.has_value());
  if (!value) return;
  CHECK(std::abs(value->hausdorff95 - expected->hausdorff95) <= 1e-12 * expected->hausdorff95);
  CHECK(std::abs(value->within_tolerance - expected->within_tolerance) <= 1e-9);
}

// The smallest cell number of a component is its name: names spread between neighbours until nothing changes.
Labels brute_force_largest(const Volume& volume, std::int32_t classes) {
  const auto positions = volume.positions();
  std::vector<std::size_t> name(positions.size());
  std::iota(name.begin(), name.end(), std::size_t{0});
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& at : positions)
      for (std::int64_t d = -1; d <= 1; ++d)
        for (std::int64_t h = -1; h <= 1; ++h)
          for (std::int64_t w = -1; w <= 1; ++w) {
            const Position neighbour{at[0] + d, at[1] + h, at[2] + w};
            if (volume(neighbour) != volume(at) || name[volume.cell(neighbour)] >= name[volume.cell(at)]) continue;
            name[volume.cell(at)] = name[volume.cell(neighbour)];
            changed = true;
          }
  }
  std::vector<std::int64_t> size(positions.size());
  for (const auto n : name) size[n] += 1;
  Labels result(positions.size());
  for (std::int32_t c = 1; c < classes; ++c) {
    std::int64_t largest = 0;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < positions.size(); ++i)
      if (volume.labels[i] == c && size[i] > largest) largest = size[i], kept = i;
    for (std::size_t i = 0; i < positions.size() && largest > 0; ++i)
      if (name[i] == kept) result[i] = c;
  }
  return result;
}

Labels largest(const Volume& volume, std::int64_t classes) { return largest_components(volume.labels, volume.extents, classes); }

}  // namespace

TEST_CASE("segmentation metrics: counts and Dice by hand") {
  const Labels truth{0, 0, 1, 1, 1, 2, 0}, predicted{0, 1, 1, 1, 0, 3, 0};
  const auto counts = count_classes(truth, predicted, 5);
  REQUIRE(counts.size() == 5);
  const std::vector<std::array<std::int64_t, 3>> expected{{2, 3, 3}, {2, 3, 3}, {0, 0, 1}, {0, 1, 0}, {0, 0, 0}};
  for (std::size_t c = 0; c < 5; ++c) {
    CHECK(counts[c].both == expected[c][0]);
    CHECK(counts[c].predicted == expected[c][1]);
    CHECK(counts[c].truth == expected[c][2]);
  }
  CHECK(dice(counts[1]) == 4.0 / 6);
  CHECK(dice(counts[2]) == 0.0);
  CHECK(dice(counts[3]) == 0.0);
  CHECK(dice(counts[4]) == std::nullopt);
  CHECK(dice({.both = 7, .predicted = 7, .truth = 7}) == 1.0);
  CHECK(dice({.both = 1, .predicted = 1, .truth = 7}) == 0.25);
  CHECK(dice(count_classes({}, {}, 1)[0]) == std::nullopt);
}

TEST_CASE("segmentation metrics: distances of surfaces by hand") {
  const Shape extents{9, 8, 7};
  for (std::int64_t n = 0; n < 7; ++n) {  // two cells n apart along an axis: half of each surface is n away
    const auto cell = with_cells(extents, {{0, 0, 0}});
    CHECK(distance(cell, with_cells(extents, {{n, 0, 0}})) == static_cast<double>(n) * uneven[0]);
    CHECK(distance(cell, with_cells(extents, {{0, n, 0}})) == static_cast<double>(n) * uneven[1]);
    CHECK(distance(with_cells(extents, {{0, 0, n}}), cell) == static_cast<double>(n) * uneven[2]);
  }
  CHECK(distance(with_cells(extents, {{1, 2, 2}}), with_cells(extents, {{1, 6, 5}}), 1, {9, 1, 1}) == 5.0);

  // A cube of 16 mm in one of 17 mm that share three faces: half of the area agrees, but for edges and corners.
  const Shape box{19, 19, 19};
  const auto one = with_box(box, {0, 0, 0}, {16, 16, 16}), other = with_box(box, {0, 0, 0}, {17, 17, 17});
  const auto found = surface_agreement(one.labels, other.labels, box, 1, {1, 1, 1}, 0.5).value();
  CHECK(found.hausdorff95 == 1.0);
  CHECK(found.within_tolerance == doctest::Approx(0.5).epsilon(0.03));
  CHECK(surface_agreement(one.labels, other.labels, box, 1, {1, 1, 1}, 2)->within_tolerance == 1.0);
  // The distance of 95 % of the area: a single cell far away from a large cube does not change it.
  auto far = with_box({20, 20, 40}, {0, 0, 0}, {20, 20, 20});
  const auto cube = far;
  far(Position{10, 10, 39}) = 1;
  CHECK(distance(cube, far) == 0.0);
  // Rates of overlap.
  CHECK(jaccard({.both = 2, .predicted = 3, .truth = 5}) == 2.0 / 6);
  CHECK(jaccard({}) == std::nullopt);
}

TEST_CASE("segmentation metrics: surfaces that are missing, of equals and in large volumes") {
  const Shape extents{4, 5, 6};
  const Volume empty{extents};
  const auto cell = with_cells(extents, {{1, 2, 3}});
  const double diagonal = std::hypot(4 * uneven[0], 5 * uneven[1], 6 * uneven[2]);
  for (const auto& [truth, predicted] : {std::pair{empty, cell}, {cell, empty}, {cell, with_cells(extents, {{1, 2, 3}}, 2)}}) {
    CHECK(distance(truth, predicted) == doctest::Approx(diagonal).epsilon(1e-14));
    CHECK(agreement(truth, predicted)->within_tolerance == 0.0);
  }
  CHECK(!agreement(empty, empty));
  CHECK(!agreement(Volume{{0, 5, 6}}, Volume{{0, 5, 6}}));
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const auto volume = scattered(extents, seed, 0.5, 4);
    for (std::int32_t label = 0; label < 4; ++label) {
      CHECK(distance(volume, volume, label) == 0.0);
      CHECK(agreement(volume, volume, label)->within_tolerance == 1.0);
    }
  }
  // The position of the two in the volume does not matter; with enough corners between them for several threads.
  const auto near = distance(with_cells({61, 40, 35}, {{0, 0, 0}, {0, 1, 0}}), with_cells({61, 40, 35}, {{60, 39, 34}}));
  CHECK(near == doctest::Approx(brute_force(with_cells({61, 40, 35}, {{0, 0, 0}, {0, 1, 0}}),
                                            with_cells({61, 40, 35}, {{60, 39, 34}}), 1, uneven)
                                    ->hausdorff95));
  CHECK(near == distance(with_cells({70, 50, 90}, {{7, 5, 41}, {7, 6, 41}}), with_cells({70, 50, 90}, {{67, 44, 75}})));
}

TEST_CASE("segmentation metrics: surfaces against every pair of elements") {
  const std::vector<std::array<double, 3>> spacings{uneven, {1, 1, 1}, {0.3, 8, 0.9}};
  std::uint64_t seed = 1;
  for (const auto& extents :
       std::vector<Shape>{{9, 7, 11}, {1, 13, 8}, {6, 1, 9}, {10, 12, 1}, {1, 1, 17}, {1, 19, 1}, {1, 1, 1}})
    for (const auto& spacing : spacings)
      for (int round = 0; round < 4; ++round, seed += 2) {
        INFO("seed ", seed);
        check_agreement(scattered(extents, seed, 0.97), scattered(extents, seed + 1, 0.9), 1, spacing);  // single cells
        check_agreement(scattered(extents, seed, 0.2), scattered(extents, seed + 1, 0.8), 1, spacing);   // few inner ones
        check_agreement(blob(extents, seed), blob(extents, seed + 1), 1, spacing);
        check_agreement(blob(extents, seed), blob(extents, seed + 1), 0, spacing);  // touches every border
        const auto one = scattered(extents, seed, 0.4, 5), other = scattered(extents, seed + 1, 0.4, 5);
        for (std::int32_t label = 0; label < 6; ++label) check_agreement(one, other, label, spacing);
      }
  // Threads share the lines.
  for (std::uint64_t s = 100; s < 103; ++s) check_agreement(blob({34, 37, 35}, s), blob({34, 37, 35}, s + 50));
}

TEST_CASE("segmentation metrics: largest components by hand") {
  // Cells connect at corners, but not over gaps; the first of equally large components stays; each class has its own.
  Volume corners = with_cells({3, 3, 6}, {{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {0, 0, 4}, {0, 0, 5}});
  CHECK(largest(corners, 2) == with_cells({3, 3, 6}, {{0, 0, 0}, {1, 1, 1}, {2, 2, 2}}).labels);
  CHECK(largest({{1, 1, 7}, {0, 1, 1, 0, 1, 1, 0}}, 2) == Labels{0, 1, 1, 0, 0, 0, 0});
  CHECK(largest({{1, 7, 1}, {1, 0, 1, 1, 0, 1, 1}}, 2) == Labels{0, 0, 1, 1, 0, 0, 0});
  CHECK(largest({{7, 1, 1}, {1, 2, 2, 1, 1, 2, 3}}, 4) == Labels{0, 2, 2, 1, 1, 0, 3});
  // The end of a row and the beginning of the next row are not neighbours.
  CHECK(largest({{1, 3, 3}, {1, 0, 0, 0, 0, 0, 2, 0, 1}}, 3) == Labels{1, 0, 0, 0, 0, 0, 2, 0, 0});
  CHECK(largest({{1, 2, 3}, {0, 0, 1, 1, 0, 0}}, 2) == Labels{0, 0, 1, 0, 0, 0});
  CHECK(largest({{2, 1, 3}, {0, 0, 1, 1, 0, 0}}, 2) == Labels{0, 0, 1, 0, 0, 0});
  // Two classes that touch, and one that another class cuts in two.
  CHECK(largest({{1, 3, 4}, {1, 2, 1, 1, 1, 2, 1, 1, 2, 2, 0, 1}}, 3) == Labels{0, 2, 1, 1, 0, 2, 1, 1, 2, 2, 0, 1});
  CHECK(largest(Volume{{3, 4, 5}}, 3) == Labels(60));
  CHECK(largest(Volume{{3, 0, 5}}, 3).empty());
}

TEST_CASE("segmentation metrics: largest components against names that spread") {
  std::uint64_t seed = 200;
  for (const auto& extents :
       std::vector<Shape>{{7, 6, 9}, {1, 12, 11}, {14, 1, 7}, {9, 10, 1}, {1, 1, 40}, {2, 2, 30}, {1, 1, 1}})
    for (const double background : {0.95, 0.8, 0.5, 0.1})
      for (int round = 0; round < 3; ++round, ++seed) {
        INFO("seed ", seed);
        for (const std::int32_t classes : {2, 3, 6}) {
          const auto volume = scattered(extents, seed, background, classes);
          CHECK(largest(volume, classes) == brute_force_largest(volume, classes));
          CHECK(largest(volume, classes + 1) == largest(volume, classes));
        }
      }
  // A component of many cells in a row needs no deep recursion.
  const auto full = with_box({100, 100, 100}, {0, 0, 0}, {100, 100, 100});
  CHECK(largest(full, 2) == full.labels);
}

TEST_CASE("segmentation metrics: what does not fit is refused") {
  const Labels eight(8), nine(9), beyond{0, 0, 0, 3, 0, 0, 0, 0}, negative{0, 0, 0, 0, -1, 0, 0, 0};
  CHECK(error_text([&] { count_classes(eight, nine, 2); }) == "[count_classes] 9 predicted labels for 8 true ones");
  CHECK(error_text([&] { count_classes(eight, eight, 0); }) == "[count_classes] there is at least one class, not 0");
  CHECK(error_text([&] { count_classes(beyond, eight, 3); }) == "[count_classes] labels are in [0, 3): truth 3 is 3");
  CHECK(error_text([&] { count_classes(eight, negative, 3); }) == "[count_classes] labels are in [0, 3): predicted 4 is -1");
  CHECK(error_text([&] { count_classes(beyond, beyond, 4); }).empty());

  const Shape cube{2, 2, 2};
  const auto refusal = [&](const Labels& truth, const Labels& predicted, const Shape& extents, std::array<double, 3> spacing,
                           double within = 1) {
    return error_text([&] { surface_agreement(truth, predicted, extents, 1, spacing, within); });
  };
  CHECK(refusal(eight, eight, cube, {1, 1, 1}).empty());
  CHECK(refusal(nine, eight, cube, {1, 1, 1}) == "[surface_agreement] truth has 9 labels for the cells of [2, 2, 2]");
  CHECK(refusal(eight, nine, cube, {1, 1, 1}) == "[surface_agreement] predicted has 9 labels for the cells of [2, 2, 2]");
  CHECK(refusal(eight, eight, {2, 4}, {1, 1, 1}) == "[surface_agreement] extents are [D, H, W], not [2, 4]");
  CHECK(refusal(eight, eight, cube, {1, 1, 1}, -1) == "[surface_agreement] the tolerance is not negative, got -1");
  for (const double wrong : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    CHECK(refusal(eight, eight, cube, {1, wrong, 1}).starts_with("[surface_agreement] a spacing is a positive number: 1, "));

  const auto components = [&](const Labels& labels, const Shape& extents, std::int64_t classes) {
    return error_text([&] { largest_components(labels, extents, classes); });
  };
  CHECK(components(nine, cube, 2) == "[largest_components] the volume has 9 labels for the cells of [2, 2, 2]");
  CHECK(components(eight, {2, 2, 1, 2}, 2) == "[largest_components] extents are [D, H, W], not [2, 2, 1, 2]");
  CHECK(components(beyond, cube, 3) == "[largest_components] labels are in [0, 3): label 3 is 3");
  CHECK(components(negative, cube, 3) == "[largest_components] labels are in [0, 3): label 4 is -1");
}
