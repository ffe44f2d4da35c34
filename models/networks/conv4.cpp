#include "models/networks/conv4.h"

#include <cmath>

#include "ops/elementwise.h"

namespace mpigrad {

Conv4::Conv4(const Conv4Options& options) : o_(options) { check(); }
Conv4::Conv4(nn::Module& parent, const std::string& name, const Conv4Options& options) : nn::Module(parent, name), o_(options) {
  check();
}
void Conv4::check() const {
  require(o_.width > 0 && o_.blocks > 0 && o_.growth > 0, "[conv4] width, blocks and growth are positive, got {}, {} and {}",
          o_.width, o_.blocks, o_.growth);
}

Tensor Conv4::operator()(const Tensor& x) {
  const auto global = [](const Tensor& y) { return y.layout() ? y.layout()->global : y.shape(); };
  require(x.rank() == 5 && global(x)[1] == 1, "[conv4] needs images [N, 1, H, W, C]: {}", x);
  Tensor y = x;
  double width = static_cast<double>(o_.width);
  for (int b = 1; b <= o_.blocks; ++b, width *= o_.growth) {
    const Triple window{1, std::min<std::int64_t>(2, global(y)[2]), std::min<std::int64_t>(2, global(y)[3])};
    const bool pools = window != Triple(1);
    y = nn::conv_norm(*this, std::to_string(b), y,
                      {.out = std::llround(width),
                       .kernel = {1, 3, 3},
                       .norm = o_.norm,
                       .activation = pools ? Activation::none : Activation::relu});
    // Maxima and ReLU commute; in this order the activation has a quarter of the work.
    if (pools) {
      nn::LayerScope scope(fmt::format("pool{}", b), "max_pool");
      y = relu(scope.done(max_pool(y, {.kernel = window, .stride = window})));
    }
  }
  return o_.average ? global_avg_pool(y) : flatten(y);
}

}  // namespace mpigrad
