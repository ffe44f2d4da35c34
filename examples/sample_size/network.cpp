#include "examples/sample_size/study.h"
#include "models/networks/cosmoflow.h"
#include "models/nn/running_norm.h"
#include "ops/elementwise.h"

namespace mpigrad::sample_size {
namespace {

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
  nn::RunningNorm norm_{*this, "norm"};
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
