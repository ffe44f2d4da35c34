#include "models/trainer/contrastive/network.h"

#include <nlohmann/json.hpp>

#include <cmath>

#include "framework/base/printable.h"
#include "framework/base/text_bounds.h"
#include "models/networks/conv4.h"
#include "models/networks/encoder3d.h"
#include "models/networks/resnet.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad::contrast {
namespace {

std::unique_ptr<nn::Module> make_encoder(nn::Module& parent, const NetworkOptions& o, const nn::BatchNormAttributes& norm) {
  if (o.encoder == "conv4") {
    Conv4Options options{.growth = o.growth, .average = o.average, .norm = norm};
    if (o.width > 0) options.width = o.width;
    if (!o.blocks.empty()) options.blocks = o.blocks[0];
    return std::make_unique<Conv4>(parent, "encoder", options);
  }
  if (o.encoder == "encoder3d") {
    Encoder3dOptions options{.norm = norm};
    if (o.width > 0) options.width = o.width;
    if (!o.blocks.empty()) options.blocks = o.blocks;
    return std::make_unique<Encoder3d>(parent, "encoder", options);
  }
  ResNetOptions options{.depth = std::stoi(o.encoder.substr(6)), .small_images = o.small_images, .norm = norm};
  if (o.width > 0) options.width = o.width;
  return std::make_unique<ResNet>(parent, "encoder", options);
}

ProjectionOptions head_options(const NetworkConfig& c) {
  const auto& o = c.options;
  ProjectionOptions head = simclr_head(o.head_hidden, o.head_out);
  if (c.loss == "moco") head = moco_head(o.head_hidden, o.head_out);
  if (c.loss == "swav" || c.loss == "dino") head = swav_head(o.head_hidden, o.head_out);
  if (c.loss == "barlow" || c.loss == "vicreg" || c.loss == "lejepa") {
    head = barlow_twins_head(o.head_hidden);
    head.out = o.head_out;
  }
  if (o.head_layers > 0) head.layers = o.head_layers;
  return head;
}

}  // namespace

std::string NetworkConfig::text() const {
  const nlohmann::ordered_json document{{"encoder", options.encoder},
                                        {"width", options.width},
                                        {"blocks", options.blocks},
                                        {"small_images", options.small_images},
                                        {"average", options.average},
                                        {"growth", options.growth},
                                        {"head_layers", options.head_layers},
                                        {"head_hidden", options.head_hidden},
                                        {"head_out", options.head_out},
                                        {"prototypes", options.prototypes},
                                        {"loss", loss},
                                        {"dtype", dtype},
                                        {"precision", precision},
                                        {"augment", augment},
                                        {"extents", std::vector<std::int64_t>(extents.begin(), extents.end())},
                                        {"channels", channels}};
  return document.dump();
}

NetworkConfig NetworkConfig::parse(const std::string& text) {
  NetworkConfig c;
  try {
    const auto excess = excess_of_json(text);
    require(excess.empty(), "the text {}", excess);
    const auto document = nlohmann::json::parse(text);
    const auto get = [&](const char* name, auto& value) { document.at(name).get_to(value); };
    get("encoder", c.options.encoder), get("width", c.options.width), get("blocks", c.options.blocks);
    get("small_images", c.options.small_images), get("average", c.options.average), get("growth", c.options.growth);
    get("head_layers", c.options.head_layers), get("head_hidden", c.options.head_hidden), get("head_out", c.options.head_out);
    get("prototypes", c.options.prototypes), get("loss", c.loss), get("dtype", c.dtype), get("precision", c.precision);
    get("augment", c.augment), get("channels", c.channels);
    const auto extents = document.at("extents").get<std::vector<std::int64_t>>();
    require(extents.size() == 3, "{} extents", extents.size());
    c.extents = {extents[0], extents[1], extents[2]};
  } catch (const std::exception& error) {
    fail("[contrastive] the weights describe their network as '{}', which this program did not write: {}", printable(text),
         printable(error.what()));
  }
  return c;
}

Network::Network(const NetworkConfig& c, const nn::BatchNormAttributes& norm) : encoder_(make_encoder(*this, c.options, norm)) {
  auto head = head_options(c);
  head.norm = norm;
  if (c.options.head_layers != 0) head_ = std::make_unique<ProjectionHead>(*this, "head", head);
  if (c.loss == "swav" || c.loss == "dino") prototypes_ = std::make_unique<Prototypes>(*this, "prototypes", c.options.prototypes);
  if (c.loss == "clip") scale_ = std::make_unique<LearnedNumber>(*this, "scale");
  if (c.loss == "siglip") {
    scale_ = std::make_unique<LearnedNumber>(*this, "scale", std::log(10));
    bias_ = std::make_unique<LearnedNumber>(*this, "bias", -10);
  }
}

Tensor Network::project(const Tensor& features) {
  const auto z = cast(head_ ? (*head_)(features) : features, dtype());
  if (building()) {
    if (prototypes_) (*prototypes_)(z);
    if (scale_) scale_->value();
    if (bias_) bias_->value();
  }
  return z;
}

Tensor Network::operator()(const Tensor& x) { return project(features(x)); }

}  // namespace mpigrad::contrast
