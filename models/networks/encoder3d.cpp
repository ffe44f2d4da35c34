#include "models/networks/encoder3d.h"

#include <algorithm>

#include "comm/distributed/local_parts.h"
#include "framework/base/joined.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad {
namespace {

constexpr std::int64_t strided_stem_from = 64, pooled_stem_from = 128;

std::int64_t longest(const Tensor& x) { return std::ranges::max(spatial::global_spatial(x)); }

// Stride 2 along the axes that are long enough.
Triple stride_for(const Tensor& x) {
  Triple stride = 1;
  const auto extents = spatial::global_spatial(x);
  for (std::size_t i = 0; i < 3; ++i)
    if (extents[i] > 2 && 2 * extents[i] > longest(x)) stride[i] = 2;
  return stride;
}

}  // namespace

Encoder3d::Encoder3d(const Encoder3dOptions& options) : o_(options) { make(); }
Encoder3d::Encoder3d(nn::Module& parent, const std::string& name, const Encoder3dOptions& options)
    : nn::Module(parent, name), o_(options) {
  make();
}

void Encoder3d::make() {
  require(o_.width > 0 && !o_.blocks.empty() && std::ranges::min(o_.blocks) > 0,
          "[encoder3d] width must be positive, and one or more stages need at least one block each: width {}, blocks ({})",
          o_.width, joined(o_.blocks, ", "));
  stem_ =
      std::make_unique<nn::ConvNorm>(*this, "1", nn::ConvNormAttributes{.out = o_.width, .kernel = o_.kernel, .norm = o_.norm});
  auto width = o_.width;
  for (const int blocks : o_.blocks) {
    auto& stage = stages_.emplace_back();
    for (int b = 0; b < blocks; ++b)
      stage.push_back(std::make_unique<nn::ResidualBlock>(
          *this, fmt::format("stage{}.block{}", stages_.size(), b + 1),
          nn::ResidualAttributes{
              .width = width, .bottleneck = o_.bottleneck, .kernel = o_.kernel, .zero_start = o_.zero_start, .norm = o_.norm}));
    width *= 2;
  }
}

std::int64_t Encoder3d::features() const { return stages_.back().back()->out(); }

Tensor Encoder3d::operator()(const Tensor& x) {
  require(x.rank() == 5, "[encoder3d] needs [N, D, H, W, C]: {}", x);
  const auto size = longest(x);
  const auto stride = size >= strided_stem_from ? stride_for(x) : Triple(1);
  const bool pools = size >= pooled_stem_from;
  Tensor y = (*stem_)(x, pools ? Activation::none : Activation::relu, stride);
  if (pools) {
    // Pooling first leaves the activation less work: maxima and ReLU commute.
    const auto by = stride_for(y);
    nn::LayerScope scope("pool", "max_pool");
    y = relu(scope.done(max_pool(y, {.kernel = by, .stride = by})));
  }
  for (std::size_t s = 0; s < stages_.size(); ++s)
    for (std::size_t b = 0; b < stages_[s].size(); ++b) y = (*stages_[s][b])(y, s > 0 && b == 0 ? stride_for(y) : Triple(1));
  return given_out(global_avg_pool(y));
}

}  // namespace mpigrad
