#include "models/trainer/segmentation/plan/rules.h"

#include <algorithm>
#include <cmath>

#include "framework/base/joined.h"
#include "models/nn/describe.h"
#include "models/trainer/tool/quantile.h"

namespace mpigrad::trainer::segmenting {
namespace {

constexpr double anisotropy = 3;  // an axis that is coarser than the others by more than this factor is treated for itself
constexpr double least_edge = 4;  // cells of the coarsest level along an axis
constexpr double start_edge = 256;

double cells_at(std::int64_t extent, double from, double to) {
  return std::max(1.0, std::round(static_cast<double>(extent) * from / to));
}

// The q quantile over volumes of a number of each axis.
template <class F>
std::array<double, 3> quantiles(const Fingerprint& f, double q, const F& of) {
  std::array<double, 3> result{};
  for (std::size_t a = 0; a < 3; ++a) {
    std::vector<double> values;
    for (std::size_t i = 0; i < f.extents.size(); ++i) values.push_back(of(i, a));
    result[a] = tool::quantile(std::move(values), q);
  }
  return result;
}

NetworkPlan network_of(const Levels& levels, const PlanRules& rules) {
  NetworkPlan network{.filters = {}, .strides = levels.strides, .kernels = levels.kernels};
  auto filters = rules.filters;
  for (std::size_t i = 0; i < levels.strides.size(); ++i, filters *= 2)
    network.filters.push_back(std::min(filters, std::max(rules.most_filters, rules.filters)));
  return network;
}

std::array<double, 3> doubles(const Shape& shape) {
  return {static_cast<double>(shape[0]), static_cast<double>(shape[1]), static_cast<double>(shape[2])};
}

// The smallest multiple of the divisor that has these cells.
Shape padded(const std::array<double, 3>& window, const Triple& divisor) {
  Shape result{1, 1, 1};
  for (std::size_t a = 0; a < 3; ++a)
    result[static_cast<int>(a)] = static_cast<std::int64_t>(std::ceil(window[a] / static_cast<double>(divisor[a]))) * divisor[a];
  return result;
}

}  // namespace

Spacing target_spacing(const Fingerprint& f) {
  require(!f.spacings.empty() && f.spacings.size() == f.extents.size(), "[plan] {} spacings of {} volumes", f.spacings.size(),
          f.extents.size());
  const auto spacing_of = [&](std::size_t i, std::size_t a) { return f.spacings[i][a]; };
  auto target = quantiles(f, 0.5, spacing_of);
  const auto cells =
      quantiles(f, 0.5, [&](std::size_t i, std::size_t a) { return static_cast<double>(f.extents[i][static_cast<int>(a)]); });
  const auto coarse = static_cast<std::size_t>(std::max_element(target.begin(), target.end()) - target.begin());
  const auto b = (coarse + 1) % 3, c = (coarse + 2) % 3;
  const double others = std::max(target[b], target[c]);
  if (target[coarse] > anisotropy * others && cells[coarse] * anisotropy < std::min(cells[b], cells[c]))
    target[coarse] = std::max(quantiles(f, 0.1, spacing_of)[coarse], others);
  return target;
}

Levels levels_of(const Spacing& spacing, const std::array<double, 3>& window) {
  Levels levels;
  auto mm = spacing;
  auto cells = window;
  Triple kernel = 1;
  for (;;) {
    double finest = std::numeric_limits<double>::infinity();
    for (std::size_t a = 0; a < 3; ++a)
      if (cells[a] >= 2 * least_edge) finest = std::min(finest, mm[a]);
    std::vector<std::size_t> halved;
    for (std::size_t a = 0; a < 3; ++a)
      if (cells[a] >= 2 * least_edge && mm[a] < 2 * finest) halved.push_back(a);
    if (halved.empty() || (halved.size() == 1 && cells[halved[0]] < 3 * least_edge)) break;
    const double least = *std::min_element(mm.begin(), mm.end());
    for (std::size_t a = 0; a < 3; ++a)
      if (mm[a] < 2 * least) kernel[a] = 3;
    levels.kernels.push_back(kernel);
    Triple stride = 1;
    for (const auto a : halved) stride[a] = 2, levels.divisor[a] *= 2, mm[a] *= 2, cells[a] = std::ceil(cells[a] / 2);
    levels.strides.push_back(stride);
  }
  levels.kernels.push_back(3);
  return levels;
}

Plan plan_of(const Fingerprint& f, const PlanRules& rules) {
  Plan plan{.spacing = rules.spacing ? *rules.spacing : target_spacing(f)};
  const auto& mm = plan.spacing;
  plan.median = quantiles(
      f, 0.5, [&](std::size_t i, std::size_t a) { return cells_at(f.extents[i][static_cast<int>(a)], f.spacings[i][a], mm[a]); });
  double all_cells = static_cast<double>(f.extents.size()), cells_of_cube = 1;
  for (std::size_t a = 0; a < 3; ++a) all_cells *= plan.median[a], cells_of_cube /= mm[a];
  const auto least_batch = rules.batch.value_or(rules.least_batch);
  Levels levels;
  const auto fit = [&](const std::array<double, 3>& window) {
    levels = levels_of(mm, window);
    plan.window = padded(window, levels.divisor);
    plan.network = network_of(levels, rules);
    return plan.bytes = rules.bytes(plan.window, plan.network, least_batch);
  };
  std::array<double, 3> start{};
  const double scale = start_edge / std::cbrt(cells_of_cube);
  for (std::size_t a = 0; a < 3; ++a) start[a] = std::min(std::round(scale / mm[a]), plan.median[a]);
  fit(rules.window ? doubles(*rules.window) : start);
  const auto refuse = [&] {
    fail("[plan] a batch of {} windows of {} does not fit: a training step needs {} on a rank, there are {}", least_batch,
         plan.window, readable_bytes(plan.bytes), readable_bytes(rules.most_bytes));
  };
  require(levels.strides.size() > 1, "[plan] a window of {} is too small for two levels: an axis of at least 12 cells is needed",
          plan.window);
  while (plan.bytes > rules.most_bytes) {
    if (rules.window) refuse();
    auto window = doubles(plan.window);
    std::size_t axis = 0;
    for (std::size_t a = 1; a < 3; ++a)
      if (window[a] / plan.median[a] >= window[axis] / plan.median[axis]) axis = a;
    // The divisor of the smaller window may be smaller; a step by the larger one would leave out sizes.
    auto smaller = window;
    smaller[axis] -= static_cast<double>(levels.divisor[axis]);
    if (smaller[axis] < 1) refuse();
    window[axis] -= static_cast<double>(levels_of(mm, smaller).divisor[axis]);
    if (levels_of(mm, window).strides.size() < 2) refuse();
    fit(window);
  }
  double window_cells = 1, median_cells = 1;
  for (std::size_t a = 0; a < 3; ++a)
    window_cells *= static_cast<double>(plan.window[static_cast<int>(a)]), median_cells *= plan.median[a];
  plan.batch_dice = window_cells < median_cells / 4;
  plan.batch = least_batch;
  if (rules.batch) return plan;
  // The largest multiple of the step that fits: doubled until one does not, then between the two.
  const auto step = rules.batch_step;
  const std::int64_t covered = std::llround(all_cells * rules.most_covered / window_cells);
  std::int64_t fits = least_batch / step, fails = std::max(covered, least_batch) / step + 1;
  std::int64_t next = std::min(2 * fits, fails - 1);
  while (fits + 1 < fails) {
    const auto bytes = rules.bytes(plan.window, plan.network, next * step);
    if (bytes <= rules.most_bytes) fits = next, plan.bytes = bytes, next = std::min(2 * fits, (fits + fails) / 2);
    else fails = next, next = (fits + fails) / 2;
    if (next <= fits) next = fits + 1;
  }
  plan.batch = fits * step;
  return plan;
}

}  // namespace mpigrad::trainer::segmenting
