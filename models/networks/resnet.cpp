#include "models/networks/resnet.h"

#include "ops/elementwise/elementwise.h"

namespace mpigrad {
namespace {

std::vector<int> blocks_of(int depth) {
  switch (depth) {
    case 10: return {1, 1, 1, 1};
    case 18: return {2, 2, 2, 2};
    case 34:
    case 50: return {3, 4, 6, 3};
    case 101: return {3, 4, 23, 3};
    case 152: return {3, 8, 36, 3};
    default: fail("[resnet] depth must be 10, 18, 34, 50, 101 or 152, got {}", depth);
  }
}

}  // namespace

ResNet::ResNet(const ResNetOptions& options) : o_(options) { make(); }
ResNet::ResNet(nn::Module& parent, const std::string& name, const ResNetOptions& options)
    : nn::Module(parent, name), o_(options) {
  make();
}

void ResNet::make() {
  require(o_.width > 0 && o_.classes >= 0, "[resnet] width must be positive, classes must not be negative, got {} and {}",
          o_.width, o_.classes);
  bottleneck_ = o_.depth >= 50;
  stem_ = std::make_unique<nn::ConvNorm>(
      *this, "1",
      nn::ConvNormAttributes{.out = o_.width, .kernel = o_.small_images ? Triple(1, 3, 3) : Triple(1, 7, 7), .norm = o_.norm});
  auto width = o_.width;
  for (const int blocks : blocks_of(o_.depth)) {
    auto& stage = stages_.emplace_back();
    for (int b = 0; b < blocks; ++b)
      stage.push_back(std::make_unique<nn::ResidualBlock>(
          *this, fmt::format("stage{}.block{}", stages_.size(), b + 1),
          nn::ResidualAttributes{
              .width = width, .bottleneck = bottleneck_, .kernel = {1, 3, 3}, .zero_start = o_.zero_start, .norm = o_.norm}));
    width *= 2;
  }
  if (o_.classes > 0)
    classifier_ = std::make_unique<nn::Linear>(*this, "classifier", nn::LinearAttributes{.out = o_.classes, .whole = true});
}

std::int64_t ResNet::features() const { return stages_.back().back()->out(); }

Tensor ResNet::operator()(const Tensor& x) {
  require(x.rank() == 5 && (x.layout() ? x.layout()->global[1] : x.dim(1)) == 1, "[resnet] needs images [N, 1, H, W, C]: {}", x);
  const Triple once = 1, twice{1, 2, 2};
  Tensor y = o_.small_images ? (*stem_)(x, Activation::relu) : (*stem_)(x, Activation::none, twice);
  // The maximum of ReLU is ReLU of the maximum, so pooling comes before the activation and leaves it less work.
  if (!o_.small_images) {
    nn::LayerScope scope("pool", "max_pool");
    y = relu(scope.done(max_pool(y, {.kernel = {1, 3, 3}, .stride = twice, .padding = {0, 1, 1}})));
  }
  for (std::size_t s = 0; s < stages_.size(); ++s)
    for (std::size_t b = 0; b < stages_[s].size(); ++b) y = (*stages_[s][b])(y, s > 0 && b == 0 ? twice : once);
  y = global_avg_pool(y);
  return classifier_ ? (*classifier_)(y) : given_out(y);
}

}  // namespace mpigrad
