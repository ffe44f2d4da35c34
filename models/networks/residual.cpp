#include "models/networks/residual.h"

#include "framework/base/joined.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad::nn {

namespace {

Conv3dAttributes conv_of(const ConvNormAttributes& a) {
  auto padding = a.kernel;
  for (auto& extent : padding) extent /= 2;
  return {.out = a.out, .kernel = a.kernel, .padding = padding, .bias = false, .start = WeightStart::he_fan_out};
}

}  // namespace

ConvNorm::ConvNorm(Module& parent, const std::string& number, const ConvNormAttributes& a)
    : conv_(parent, "conv" + number, conv_of(a)), norm_(parent, "norm" + number, a.norm) {}

Tensor ConvNorm::operator()(const Tensor& x, Activation activation, const Triple& stride) {
  return norm_(conv_(x, Activation::none, stride), activation);
}

ResidualBlock::ResidualBlock(Module& parent, const std::string& name, const ResidualAttributes& attributes)
    : Module(parent, name), a_(attributes) {
  for (const auto extent : a_.kernel)
    require(extent % 2 == 1, "[{}] kernels of residual blocks must be odd, got ({})", path(), joined(a_.kernel, ", "));
  auto last = a_.norm;
  if (a_.zero_start) last.gamma_start = 0;
  if (a_.bottleneck) {
    branch_.add(*this, "1", {.out = a_.width, .kernel = 1, .norm = a_.norm});
    branch_.add(*this, "2", {.out = a_.width, .kernel = a_.kernel, .norm = a_.norm});
    branch_.add(*this, "3", {.out = out(), .kernel = 1, .norm = last});
  } else {
    branch_.add(*this, "1", {.out = a_.width, .kernel = a_.kernel, .norm = a_.norm});
    branch_.add(*this, "2", {.out = a_.width, .kernel = a_.kernel, .norm = last});
  }
  shortcut_ = std::make_unique<ConvNorm>(*this, "_shortcut", ConvNormAttributes{.out = out(), .kernel = 1, .norm = a_.norm});
}

Tensor ResidualBlock::operator()(const Tensor& x, const Triple& stride) {
  const std::size_t strided = a_.bottleneck ? 1 : 0;
  Tensor y = x;
  for (std::size_t i = 0; i < branch_.size(); ++i)
    y = branch_[i](y, i + 1 < branch_.size() ? Activation::relu : Activation::none, i == strided ? stride : Triple(1));
  const bool same = channels_of(x) == out() && stride == Triple(1);
  const auto shortcut = same ? x : (*shortcut_)(x, Activation::none, stride);
  // The shortcut may have its channels on other ranks.
  return relu(y + (y.layout() ? redistribute(shortcut, y.layout()) : shortcut));
}

}  // namespace mpigrad::nn
