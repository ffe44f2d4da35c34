#include "models/nn/running_norm.h"

#include <algorithm>
#include <cmath>

#include "comm/distributed/redistribute.h"

namespace mpigrad::nn {
namespace {

// Updates the averages. The squares are about the mean before this step, so that steps of one sample contribute to the variance.
void count_step(const Tensor& x, Tensor& mean, Tensor& variance, Tensor& steps) {
  constexpr double power = 3, least_deviation = 0.01;  // lower limit relative to the mean: nearly constant features are not
                                                       // amplified
  const Untaped scope;
  const auto all = x.layout() ? gather_all(x) : x;
  const auto values = all.to_vector();
  auto m = mean.to_vector(), v = variance.to_vector();
  const double before = steps.item(), now = (power + 1) / (before + 1 + power);
  const auto rows = static_cast<std::size_t>(all.dim(0)), columns = m.size();
  for (std::size_t c = 0; c < columns; ++c) {
    double sum = 0, squares = 0;
    for (std::size_t r = 0; r < rows; ++r) sum += values[r * columns + c];
    const double batch = sum / static_cast<double>(rows), about = before == 0 ? batch : m[c];
    for (std::size_t r = 0; r < rows; ++r) squares += std::pow(values[r * columns + c] - about, 2);
    m[c] += now * (batch - m[c]);
    v[c] += now * (squares / static_cast<double>(rows) - v[c]);
    v[c] = std::max(v[c], std::pow(least_deviation * m[c], 2));
  }
  mean = from_vector(mean.shape(), m, mean.dtype()), variance = from_vector(variance.shape(), v, variance.dtype());
  steps = from_vector({1}, {before + 1}, steps.dtype());
}

}  // namespace

Tensor RunningNorm::operator()(const Tensor& taken) {
  const auto x = at_stage(taken);
  const Shape channels{x.dim(1)};
  const auto gamma = parameter("gamma", channels, constant_value(1), false);
  const auto beta = parameter("beta", channels, constant_value(0), false);
  auto &mean = buffer("mean", channels, 0), &variance = buffer("variance", channels, 1), &steps = buffer("steps", {1}, 0);
  const ChannelNormAttributes attributes{.epsilon = 1e-12};
  if (x.device() == DeviceKind::dry) {
    const auto whole = gamma.without_layout();
    return normalise(x, {constant(zeros_like(whole)), constant(ones_like(whole))}, gamma, beta, attributes);
  }
  if (training() && !Tape::replaying() && steps.item() >= 0) count_step(x, mean, variance, steps);
  return normalise(x, {constant(mean), constant(variance)}, gamma, beta, attributes);
}

}  // namespace mpigrad::nn
