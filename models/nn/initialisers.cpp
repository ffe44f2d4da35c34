#include <cmath>

#include "models/nn/module.h"
#include "ops/random/random.h"
#include "ops/views/views.h"

namespace mpigrad::nn {

Tensor Initialiser::operator()(const Shape& shape, DType dtype, const Philox& random, const LayoutPtr& layout) const {
  if (of_block_) return of_block_(shape, dtype, random, layout);
  const auto whole = of_all_(shape, dtype, random);
  if (!layout) return whole;
  const Untaped scope;
  const auto box = layout->box();
  return slice(whole, box.begin, box.end);
}

Initialiser constant_value(double value) {
  return [=](const Shape& shape, DType dtype, const Philox&, const LayoutPtr& layout) {
    return full(layout ? layout->box().extents() : shape, value, dtype);
  };
}

Initialiser glorot_uniform(double fan_in, double fan_out) {
  const double bound = std::sqrt(6 / (fan_in + fan_out));
  return [=](const Shape& shape, DType dtype, const Philox& random, const LayoutPtr& layout) {
    return random_uniform(shape, random, -bound, bound, dtype, layout);
  };
}

Initialiser he_normal(double fan_in) {
  return [=](const Shape& shape, DType dtype, const Philox& random, const LayoutPtr& layout) {
    return random_normal(shape, random, 0, std::sqrt(2 / fan_in), dtype, layout);
  };
}

}  // namespace mpigrad::nn
