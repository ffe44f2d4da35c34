// Batch norm by its formulas, with statistics over all rows, over the ranks of one sample, over the ranks of all samples that
// hold the same spatial block, or over the rows of one rank; and group norm over the channel groups of a sample, on all of its
// ranks or on one.

#include <cmath>
#include <map>

#include "comm/distributed/distributed.h"
#include "tests/ops/comparison/comparison_fuzz.h"

namespace mpigrad::testing {
namespace {

using Row = std::vector<double>;

struct NormCase {
  bool given = false;  // the statistics are constants, as in evaluation
  StatisticsOver over{};
  std::int64_t groups = -1;  // groups of group norm; -1: batch norm
  double epsilon = 1e-5, slope = 1;
  Shape x{};
  Row values{}, gamma{}, beta{}, g{}, mean{}, variance{};

  std::size_t channels() const { return gamma.size(); }
  // Channels that share statistics.
  std::size_t together() const { return groups > 0 ? channels() / static_cast<std::size_t>(groups) : 1; }
};

// Also values far from 0 in units of their deviation, for which sums of squares would lose every digit.
NormCase draw(Dice& dice, const Philox& random) {
  static const std::int64_t channels[] = {1, 2, 3, 5, 8, 16, 17, 33};
  static const double epsilons[] = {1e-5, 1e-3, 0.1}, slopes[] = {1, 0.25, 0}, offsets[] = {0, 0, 1, -30, 300};
  NormCase c{.given = dice(0, 4) == 0,
             .over = static_cast<StatisticsOver>(dice(0, 3)),
             .epsilon = epsilons[dice(0, 2)],
             .slope = slopes[dice(0, 2)]};
  const auto extent = [&] { return dice(0, 3) == 0 ? 1 : dice(2, 6); };
  c.x = {dice(1, 4), extent(), extent(), extent(), channels[dice(0, 7)]};
  const auto n = c.x[4];
  if (!c.given && dice(0, 1) == 0) {
    c.over = dice(0, 2) == 0 ? StatisticsOver::local : StatisticsOver::spatial_group;
    static const std::int64_t divisors[] = {1, 2, 3, 8};
    const auto divisor = divisors[dice(0, 3)];
    c.groups = dice(0, 2) == 0 || n % divisor != 0 ? 0 : divisor;
  }
  c.gamma = fuzz_numbers(n, random.child(1), false), c.beta = fuzz_numbers(n, random.child(2), false);
  c.mean = fuzz_numbers(n, random.child(3), false), c.variance = magnitudes(fuzz_numbers(n, random.child(4), false));
  c.g = fuzz_numbers(c.x.elements(), random.child(5), false);
  c.values = fuzz_numbers(c.x.elements(), random.child(6), false);
  const double offset = offsets[dice(0, 4)];
  for (auto& value : c.values) value = static_cast<double>(static_cast<float>(value + offset));
  if (c.given)
    for (auto& mean : c.mean) mean = static_cast<double>(static_cast<float>(mean + offset));
  return c;
}

// Rows of x that share statistics; all rows of a group are on the ranks of one part.
std::vector<std::vector<std::size_t>> groups_of(const NormCase& c, const LayoutPtr& layout) {
  const Shape begin{0, 0, 0, 0, 0};
  std::map<std::string, Box> parts;
  const auto add = [&](const Box& box) {
    if (box.elements() > 0) parts[to_string(box)] = box;
  };
  for (int rank = 0; rank < (layout ? layout->grid->ranks() : 1); ++rank) {
    Box box{begin, c.x};
    if (layout && !c.given && c.over != StatisticsOver::all) {
      const auto held = layout->box(rank);
      if (c.over != StatisticsOver::batch_group) box.begin[0] = held.begin[0], box.end[0] = held.end[0];
      for (int d = 1; d < 4 && c.over != StatisticsOver::spatial_group; ++d)
        box.begin[d] = held.begin[d], box.end[d] = held.end[d];
    }
    if (c.groups < 0) add(box);
    else
      for (auto n = box.begin[0]; n < box.end[0]; ++n) {
        Box sample = box;
        sample.begin[0] = n, sample.end[0] = n + 1;
        add(sample);
      }
  }
  std::vector<std::vector<std::size_t>> groups;
  for (const auto& [name, box] : parts) {
    groups.emplace_back();
    for (auto n = box.begin[0]; n < box.end[0]; ++n)
      for (auto d = box.begin[1]; d < box.end[1]; ++d)
        for (auto h = box.begin[2]; h < box.end[2]; ++h)
          for (auto w = box.begin[3]; w < box.end[3]; ++w)
            groups.back().push_back(static_cast<std::size_t>(((n * c.x[1] + d) * c.x[2] + h) * c.x[3] + w));
  }
  return groups;
}

// z = (x - mean) / sqrt(variance + epsilon), y = leaky(z gamma + beta). Rounding changes the mean by a relative epsilon, so
// `far`, its distance from 0 in deviations, bounds the loss.
class Sums {
 public:
  Sums(const NormCase& c, const LayoutPtr& layout) : c_(c), y_(c.values.size()), y_scale_(y_), g_(c.g), gx_(y_), gx_scale_(y_) {
    for (auto* sums : {&gamma_, &gamma_scale_, &beta_, &beta_scale_}) sums->assign(c.channels(), 0.0);
    for (const auto& rows : groups_of(c, layout))
      for (std::size_t channel = 0; channel < c.channels(); channel += c.together()) group(rows, channel);
  }
  Truth truth() const {
    const auto of = [](const Shape& shape, const Row& values) { return from_vector(shape, values, DType::float64); };
    const Shape n{static_cast<std::int64_t>(c_.channels())};
    return {of(c_.x, y_),
            of(c_.x, y_scale_),
            of(c_.x, g_),
            {of(c_.x, gx_), of(n, gamma_), of(n, beta_)},
            {of(c_.x, gx_scale_), of(n, gamma_scale_), of(n, beta_scale_)}};
  }

 private:
  // The group of channels that begins at `first`.
  void group(const std::vector<std::size_t>& rows, std::size_t first) {
    std::vector<std::size_t> places;
    for (const auto row : rows)
      for (std::size_t k = 0; k < c_.together(); ++k) places.push_back(row * c_.channels() + first + k);
    const auto count = static_cast<double>(places.size());
    double mean = 0, variance = 0;
    for (const auto i : places) mean += c_.values[i] / count;
    for (const auto i : places) variance += std::pow(c_.values[i] - mean, 2) / count;
    if (c_.given) mean = c_.mean[first], variance = c_.variance[first];
    const double root = 1 / std::sqrt(variance + c_.epsilon), far = 1 + std::abs(mean) * root;
    double h_sum = 0, hz_sum = 0, h_size = 0, hz_size = 0;  // of h = inner gamma
    Row z;
    for (const auto i : places) {
      const auto channel = i % c_.channels();
      const double gamma = c_.gamma[channel];
      z.push_back((c_.values[i] - mean) * root);
      const double sum = z.back() * gamma + c_.beta[channel];
      y_scale_[i] = std::abs(gamma) * (std::abs(z.back()) + 1) * far + std::abs(c_.beta[channel]);
      if (c_.slope != 1 && std::abs(sum) < 1e-4 * y_scale_[i]) g_[i] = 0;
      y_[i] = leaky(sum, c_.slope);
      const double inner = sum > 0 ? g_[i] : c_.slope * g_[i], size = (std::abs(z.back()) + 1) * far;
      gamma_[channel] += inner * z.back(), gamma_scale_[channel] += std::abs(inner) * size;
      beta_[channel] += inner, beta_scale_[channel] += std::abs(inner);
      gx_[i] = inner * gamma;
      h_sum += gx_[i], hz_sum += gx_[i] * z.back();
      h_size += std::abs(gx_[i]), hz_size += std::abs(gx_[i]) * size;
    }
    for (std::size_t k = 0; k < places.size(); ++k) {
      const auto i = places[k];
      const double h = gx_[i];
      gx_[i] = root * (c_.given ? h : h - h_sum / count - z[k] * hz_sum / count);
      gx_scale_[i] = root * far * (std::abs(h) + h_size / count + (std::abs(z[k]) + 1) * hz_size / count);
    }
  }

  const NormCase& c_;
  Row y_, y_scale_, g_, gx_, gx_scale_, gamma_, gamma_scale_, beta_, beta_scale_;
};

std::string text(const NormCase& c) {
  static const char* const names[] = {"a rank", "a sample's ranks", "one part's ranks", "all"};
  const auto kind = c.given ? "normalise" : c.groups < 0 ? "batch_norm" : fmt::format("group_norm ({})", c.groups);
  return fmt::format("{} {}, {} rows, statistics of {}, epsilon {}, slope {}, first value {}", kind, c.x, c.x.elements() / c.x[4],
                     c.given ? "another" : names[static_cast<int>(c.over)], c.epsilon, c.slope, c.values[0]);
}

}  // namespace

ComparisonCase norm_comparison(std::uint64_t seed) {
  Dice dice(seed);
  const auto c = std::make_shared<const NormCase>(draw(dice, Philox{.key = seed, .stream = 13}));
  const Shape n{c->x[4]};
  const auto of = [](const Shape& shape, const Row& values) { return from_vector(shape, values, DType::float64); };
  return {text(*c),
          {of(c->x, c->values), of(n, c->gamma), of(n, c->beta)},
          [c, n](const Tensors& in) {
            const ChannelNormAttributes attributes{
                .epsilon = c->epsilon, .statistics = c->over, .activation = Activation::leaky_relu(c->slope)};
            if (c->groups >= 0)
              return group_norm(in[0], in[1], in[2],
                                {.groups = c->groups,
                                 .epsilon = c->epsilon,
                                 .statistics = c->over,
                                 .activation = Activation::leaky_relu(c->slope)});
            if (!c->given) return batch_norm(in[0], in[1], in[2], attributes).y;
            const auto type = in[0].dtype();
            return normalise(in[0], {from_vector(n, c->mean, type), from_vector(n, c->variance, type)}, in[1], in[2], attributes);
          },
          [c](const LayoutPtr& layout) { return Sums(*c, layout).truth(); }};
}

}  // namespace mpigrad::testing
