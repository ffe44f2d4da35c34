#include "models/networks/conv4.h"

#include <cmath>

#include "ops/elementwise/elementwise.h"

namespace mpigrad {

Conv4::Conv4(const Conv4Options& options) : o_(options) { make(); }
Conv4::Conv4(nn::Module& parent, const std::string& name, const Conv4Options& options) : nn::Module(parent, name), o_(options) {
  make();
}
void Conv4::make() {
  require(o_.width > 0 && o_.blocks > 0 && o_.growth > 0, "[conv4] width, blocks and growth must be positive, got {}, {} and {}",
          o_.width, o_.blocks, o_.growth);
  double width = static_cast<double>(o_.width);
  for (int b = 1; b <= o_.blocks; ++b, width *= o_.growth)
    blocks_.add(*this, std::to_string(b), {.out = std::llround(width), .kernel = {1, 3, 3}, .norm = o_.norm});
}

Tensor Conv4::operator()(const Tensor& x) {
  require(x.rank() == 5 && global_shape(x)[1] == 1, "[conv4] needs images [N, 1, H, W, C]: {}", x);
  Tensor y = x;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const Triple window{1, std::min<std::int64_t>(2, global_shape(y)[2]), std::min<std::int64_t>(2, global_shape(y)[3])};
    const bool pools = window != Triple(1);
    y = blocks_[b](y, pools ? Activation::none : Activation::relu);
    // Maxima and ReLU commute; pooling first leaves the activation a quarter of the work.
    if (pools) {
      nn::LayerScope scope(fmt::format("pool{}", b + 1), "max_pool");
      y = relu(scope.done(max_pool(y, {.kernel = window, .stride = window})));
    }
  }
  return o_.average ? given_out(global_avg_pool(y)) : flatten(y);
}

}  // namespace mpigrad
