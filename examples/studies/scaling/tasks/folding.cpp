// An autoencoder that compresses contact maps of chains to a few numbers, in place of trajectories of folding proteins. Chains
// have two or three segments, each a helix or a strand, of random lengths, antiparallel and joined by loops; then overlapping
// residues are pushed apart, the chain is contracted, and bonds get their length. Generated chains, not proteins.

#include <array>
#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "examples/studies/scaling/tasks/sample_set.h"
#include "framework/tensor/random.h"
#include "models/nn/layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"

namespace mpigrad::scaling {
namespace {

constexpr std::int64_t residues = 24;
using Position = std::array<double, 3>;  // in Angstrom
constexpr double pi = std::numbers::pi;
constexpr double bond = 3.8, contact = 8, edge = 0.8;

// Residues `first` to `last` of a chain.
struct Segment {
  bool helix = false;
  std::size_t first = 0, last = 0;
};

std::vector<Segment> draw_segments(const Philox& random) {
  constexpr std::size_t loop = 2;
  const std::size_t count = 2 + random.below(0, 2), all = static_cast<std::size_t>(residues);
  const bool same = random.below(1, 2) == 0;  // all segments of one kind, or each of a random kind
  const bool helix = random.below(2, 2) == 0;
  std::vector<Segment> segments;
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto left = all - at, even = left / (count - i);
    // About equal lengths; the last segment gets the rest.
    const auto length = i + 1 == count ? left : even - 2 + random.below(10 + i, 5);
    segments.push_back(
        {.helix = same ? helix : random.below(20 + i, 2) == 0, .first = at, .last = at + length - (i + 1 < count ? loop : 0)});
    at += length;
  }
  return segments;
}

// Segments along z, alternately up and down; the relaxation forms the loops.
std::vector<Position> laid_out(const std::vector<Segment>& segments, const Philox& random) {
  std::vector<Position> chain(static_cast<std::size_t>(residues));
  double x = 0;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const auto& segment = segments[s];
    const auto length = segment.last - segment.first;
    const double phase = 2 * pi * random.uniform(s), rise = segment.helix ? 1.5 : 3.3, direction = s % 2 == 0 ? 1 : -1;
    for (std::size_t i = 0; i < length; ++i) {
      const double z = direction * rise * (static_cast<double>(i) - static_cast<double>(length - 1) / 2);
      const double angle = phase + direction * (segment.helix ? 100 * pi / 180 : pi) * static_cast<double>(i);
      const double radius = segment.helix ? 2.3 : 0.9;
      chain[segment.first + i] = {x + (segment.helix ? radius * std::cos(angle) : 0), radius * std::sin(angle), z};
    }
    if (s + 1 < segments.size()) x += segment.helix || segments[s + 1].helix ? 8.5 : 5;
  }
  for (std::size_t s = 0; s + 1 < segments.size(); ++s) {
    const auto begin = segments[s].last - 1, end = segments[s + 1].first;
    for (auto i = begin + 1; i < end; ++i) {
      const double part = static_cast<double>(i - begin) / static_cast<double>(end - begin);
      for (std::size_t d = 0; d < 3; ++d) chain[i][d] = (1 - part) * chain[begin][d] + part * chain[end][d];
      chain[i][2] += (s % 2 == 0 ? 1 : -1) * 2.5;
    }
  }
  return chain;
}

// Moves a and b along the line between them, so that their distance comes nearer to `wanted`, by the fraction `part` of the
// difference.
void bring(Position& a, Position& b, double wanted, double part) {
  Position step{};
  double r2 = 1e-6;
  for (std::size_t d = 0; d < 3; ++d) step[d] = b[d] - a[d], r2 += step[d] * step[d];
  const double r = std::sqrt(r2), move = part * (r - wanted) / (2 * r);
  for (std::size_t d = 0; d < 3; ++d) a[d] += move * step[d], b[d] -= move * step[d];
}

double distance(const Position& a, const Position& b) { return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]); }

void relax(std::vector<Position>& chain) {
  constexpr int rounds = 20;
  constexpr double overlap = 4.5, attraction = 0.004;
  for (int round = 0; round < rounds; ++round) {
    Position centre{};
    for (const auto& p : chain)
      for (std::size_t d = 0; d < 3; ++d) centre[d] += p[d] / static_cast<double>(chain.size());
    for (auto& p : chain)
      for (std::size_t d = 0; d < 3; ++d) p[d] += attraction * (centre[d] - p[d]);
    for (std::size_t i = 0; i < chain.size(); ++i)
      for (std::size_t j = i + 2; j < chain.size(); ++j)
        if (distance(chain[i], chain[j]) < overlap) bring(chain[i], chain[j], overlap, 0.5);
    for (std::size_t i = 0; i + 1 < chain.size(); ++i) bring(chain[i], chain[i + 1], bond, 0.8);
  }
}

// Depends only on `random`.
std::vector<Position> fold_chain(const Philox& random) {
  auto chain = laid_out(draw_segments(random.child(0)), random.child(1));
  const auto noise = random.child(2);
  for (std::size_t i = 0; i < chain.size(); ++i)
    for (std::size_t d = 0; d < 3; ++d) chain[i][d] += 0.4 * noise.normal(3 * i + d);
  relax(chain);
  return chain;
}

// [residues, residues]: 1 if two residues are much nearer than `contact`, 0 if they are much farther apart, 1/2 at `contact`.
void contact_map(const std::vector<Position>& chain, std::span<float> contacts) {
  const auto n = chain.size();
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i; j < n; ++j)
      contacts[i * n + j] = contacts[j * n + i] =
          static_cast<float>(1 / (1 + std::exp((distance(chain[i], chain[j]) - contact) / edge)));
}

data::SourcePtr maps(const std::string& name, std::int64_t count, const Philox& random) {
  return own_targets({.name = name, .count = count, .extents = {1, residues, residues}},
                     [&](std::int64_t sample, std::span<float> contacts) {
                       contact_map(fold_chain(random.child(static_cast<std::uint64_t>(sample))), contacts);
                     });
}

// [N, 1, 24, 24, 1] -> contacts [N, 576], through a code of 16 numbers; 49,008 weights. The decoder has a bias for each contact,
// with which it learns the mean map first; transposed convolutions have no such bias and need many times the samples.
class Autoencoder : public nn::Module {
 public:
  Tensor operator()(const Tensor& x) override { return map_(spread_(code_(flatten(down2_(down1_(x - about_mean)))))); }

 private:
  nn::Conv3d down1_{*this, "down1", down(8)}, down2_{*this, "down2", down(16)};
  nn::Linear code_{*this, "code", {.out = 16, .whole = true}};
  nn::Linear spread_{*this, "spread", {.out = 64, .activation = Activation::relu, .whole = true}};
  nn::Linear map_{*this, "map", {.out = residues * residues, .whole = true}};

  static constexpr double about_mean = 0.4;
  static nn::Conv3dAttributes down(std::int64_t out) {
    return {.out = out,
            .kernel = {1, 3, 3},
            .stride = {1, 2, 2},
            .padding = {0, 1, 1},
            .activation = Activation::relu,
            .start = nn::WeightStart::he_fan_out};
  }
};

// The mean square over each sample's map, added up over samples.
double square_error(const Tensor& prediction, const Tensor& maps) {
  const auto predicted = prediction.to_vector(), truth = maps.to_vector();
  double sum = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const double difference = predicted[i] - truth[i];
    sum += difference * difference;
  }
  return sum / static_cast<double>(residues * residues);
}

}  // namespace

Task folding(const TaskOptions& options) {
  const auto [training, test] = sample_numbers("folding", options, 4000, 1000);
  return {
      .name = "folding",
      .error_name = "squared error",
      .training = maps("contact map", training, Philox{options.seed, 3}),
      .test = maps("test contact map", test, Philox{options.seed, 4}),
      .make = [] { return std::make_unique<Autoencoder>(); },
      // For each sample the squares over all contacts, added up and divided by the number of residues.
      .loss = [](const Tensor& prediction, const Tensor& maps) { return mse(prediction, maps) * static_cast<double>(residues); },
      .error = square_error,
      .goal = 0.025,
      .learning_rates = {0.005, 0.01, 0.02, 0.04, 0.08},
      .momentum = 0.9,
      .budget = 100000,
      .every = 512};
}

}  // namespace mpigrad::scaling
