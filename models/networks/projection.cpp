#include "models/networks/projection.h"

#include "models/losses/contrastive/batch.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"

namespace mpigrad {

ProjectionOptions simclr_head(std::int64_t hidden, std::int64_t out) {
  return {.layers = 2, .hidden = hidden, .out = out, .final_norm = true};
}
ProjectionOptions moco_head(std::int64_t hidden, std::int64_t out) {
  return {.layers = 2, .hidden = hidden, .out = out, .hidden_norm = false, .bias = true};
}
ProjectionOptions swav_head(std::int64_t hidden, std::int64_t out) {
  return {.layers = 2, .hidden = hidden, .out = out, .bias = true};
}
ProjectionOptions barlow_twins_head(std::int64_t width) { return {.layers = 3, .hidden = width, .out = width}; }
ProjectionOptions vicreg_head(std::int64_t width) { return {.layers = 3, .hidden = width, .out = width}; }

ProjectionHead::ProjectionHead(nn::Module& parent, const std::string& name, const ProjectionOptions& options)
    : nn::Module(parent, name), o_(options) {
  require(o_.layers >= 1 && o_.layers <= 3, "[{}] a projection head has 1 to 3 layers, got {}", path(), o_.layers);
  require(o_.out > 0 && (o_.layers == 1 || o_.hidden > 0), "[{}] widths must be positive: hidden {}, out {}", path(), o_.hidden,
          o_.out);
  auto activated = o_.norm, plain = o_.norm;
  activated.activation = Activation::relu, plain.affine = false;
  for (int i = 1; i <= o_.layers; ++i) {
    const bool last = i == o_.layers;
    const auto activation = last || o_.hidden_norm ? Activation::none : Activation::relu;
    linears_.add(
        *this, fmt::format("linear{}", i),
        {.out = last ? o_.out : o_.hidden, .bias = last ? o_.bias : !o_.hidden_norm, .activation = activation, .whole = last});
    if (last ? o_.final_norm : o_.hidden_norm) norms_.add(*this, fmt::format("norm{}", i), last ? plain : activated);
  }
}

Tensor ProjectionHead::operator()(const Tensor& x) {
  Tensor y = x;
  std::size_t norm = 0;
  for (std::size_t i = 0; i < linears_.size(); ++i) {
    y = linears_[i](y);
    if (i + 1 < linears_.size() ? o_.hidden_norm : o_.final_norm) y = norms_[norm++](y);
  }
  return y;
}

Prototypes::Prototypes(nn::Module& parent, const std::string& name, std::int64_t count)
    : nn::Module(parent, name), count_(count) {
  require(count > 0, "[{}] needs at least one prototype, got {}", path(), count);
}

Tensor Prototypes::operator()(const Tensor& z) {
  require(z.rank() == 2, "[{}] needs embeddings [N, width]: {}", path(), z);
  return parameter(
      "weight", {count_, z.dim(1)},
      [](const Shape& shape, DType dtype, const Philox& random) {
        return contrastive::unit_rows(random_normal(shape, random, 0, 1, dtype));
      },
      false);
}

LearnedNumber::LearnedNumber(nn::Module& parent, const std::string& name, double start)
    : nn::Module(parent, name), start_(start) {}

Tensor LearnedNumber::value() { return parameter("value", Shape(), nn::constant_value(start_), false); }

}  // namespace mpigrad
