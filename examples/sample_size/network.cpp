#include <algorithm>
#include <cmath>

#include "comm/spatial/norm.h"
#include "comm/spatial/redistribute.h"
#include "examples/sample_size/study.h"
#include "models/networks/cosmoflow.h"
#include "models/nn/layers.h"
#include "ops/elementwise.h"
#include "ops/pool.h"

namespace mpigrad::sample_size {
namespace {

// Means over space of a large sample differ little from sample to sample, and a batch may be one sample, which has no statistics
// of its own: features are normalised by those of the steps so far, which are constants to the gradient.
class RunningNorm : public nn::Module {
 public:
  RunningNorm(nn::Module& parent, const std::string& name) : Module(parent, name) {}
  // [N, C]
  Tensor operator()(const Tensor& x) override {
    const Shape channels{x.dim(1)};
    const auto gamma = parameter("gamma", channels, nn::constant_value(1), false);
    const auto beta = parameter("beta", channels, nn::constant_value(0), false);
    auto &mean = buffer("mean", channels, 0), &variance = buffer("variance", channels, 1), &steps = buffer("steps", {1}, 0);
    if (x.device() == DeviceKind::dry)
      return normalise(x, {constant(zeros_like(gamma)), constant(ones_like(gamma))}, gamma, beta, {.epsilon = 1e-12});
    if (training() && !Tape::replaying()) update(x, mean, variance, steps);
    return normalise(x, {constant(mean), constant(variance)}, gamma, beta, {.epsilon = 1e-12});
  }

 private:
  // Polynomially decaying averages (Shamir and Zhang 2013, eta = 3): step t counts with the weight (3 + 1) / (t + 3), so that
  // half of an average is the last sixth of the steps, however many they were. Those over a fixed number of steps wander to the
  // end of a training where a step is one sample, and what it predicts with them. The squares are about the mean before this
  // step, so that steps of one sample count.
  static void update(const Tensor& x, Tensor& mean, Tensor& variance, Tensor& steps) {
    constexpr double power = 3, least_deviation = 0.01;  // of the mean: what is taken for constant is not blown up
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
};

class Statistics : public nn::Module {
 public:
  explicit Statistics(std::int64_t targets) : linear2_{*this, "linear2", {.out = targets, .whole = true}} {}
  Tensor operator()(const Tensor& input) override {
    Tensor x = conv1_.pooled(input * 2.5 - 1.25, "pool1", nn::Pooling::average, half);
    x = conv2_.pooled(x, "pool2", nn::Pooling::average, half);
    x = conv3_.pooled(x, "pool3", nn::Pooling::average, half);
    x = conv4_(x);
    return linear2_(linear1_(norm_(global_avg_pool(x))));
  }

 private:
  static constexpr Activation activation = Activation::leaky_relu(0.01);
  static inline const PoolAttributes half{.kernel = 2, .stride = 2};
  nn::Conv3d conv1_{*this, "conv1", {.out = 16, .kernel = 3, .padding = 1, .activation = activation}};
  nn::Conv3d conv2_{*this, "conv2", {.out = 32, .kernel = 3, .padding = 1, .activation = activation}};
  nn::Conv3d conv3_{*this, "conv3", {.out = 64, .kernel = 3, .padding = 1, .activation = activation}};
  nn::Conv3d conv4_{*this, "conv4", {.out = 128, .kernel = 3, .padding = 1, .activation = activation}};
  RunningNorm norm_{*this, "norm"};
  nn::Linear linear1_{*this, "linear1", {.out = 128, .activation = activation}};
  nn::Linear linear2_;
};

}  // namespace

std::unique_ptr<nn::Module> make_network(const std::string& name, std::int64_t targets) {
  if (name == "cosmoflow") return std::make_unique<CosmoFlow>(CosmoFlowOptions{.targets = targets});
  require(name == "statistics", "[sample_size] there is no network '{}'", name);
  return std::make_unique<Statistics>(targets);
}

}  // namespace mpigrad::sample_size
