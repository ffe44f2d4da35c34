#include "models/networks/residual.h"

#include "framework/joined.h"
#include "ops/elementwise.h"

namespace mpigrad::nn {

Tensor conv_norm(Module& parent, const std::string& number, const Tensor& x, const ConvNormAttributes& a) {
  Triple padding = a.kernel;
  for (auto& extent : padding) extent /= 2;
  // Layers are names for parameters of the root, so that they may be made where they are used.
  Conv3d conv(parent, "conv" + number,
              {.out = a.out,
               .kernel = a.kernel,
               .stride = a.stride,
               .padding = padding,
               .bias = false,
               .start = WeightStart::he_fan_out});
  auto activated = a.norm;
  activated.activation = a.activation;
  BatchNorm norm(parent, "norm" + number, activated);
  return norm(conv(x));
}

ResidualBlock::ResidualBlock(Module& parent, const std::string& name, const ResidualAttributes& attributes)
    : Module(parent, name), a_(attributes) {
  for (const auto extent : a_.kernel)
    require(extent % 2 == 1, "[{}] kernels of residual blocks are odd, got ({})", path(), joined(a_.kernel, ", "));
}

Tensor ResidualBlock::operator()(const Tensor& x, const Triple& stride) {
  auto last = a_.norm;
  if (a_.zero_start) last.gamma_start = 0;
  Tensor y;
  if (a_.bottleneck) {
    y = conv_norm(*this, "1", x, {.out = a_.width, .kernel = 1, .norm = a_.norm, .activation = Activation::relu});
    y = conv_norm(*this, "2", y,
                  {.out = a_.width, .kernel = a_.kernel, .stride = stride, .norm = a_.norm, .activation = Activation::relu});
    y = conv_norm(*this, "3", y, {.out = out(), .kernel = 1, .norm = last});
  } else {
    y = conv_norm(*this, "1", x,
                  {.out = a_.width, .kernel = a_.kernel, .stride = stride, .norm = a_.norm, .activation = Activation::relu});
    y = conv_norm(*this, "2", y, {.out = a_.width, .kernel = a_.kernel, .norm = last});
  }
  const bool same = x.dim(-1) == out() && stride == Triple(1);
  return relu(y + (same ? x : conv_norm(*this, "_shortcut", x, {.out = out(), .kernel = 1, .stride = stride, .norm = a_.norm})));
}

}  // namespace mpigrad::nn
