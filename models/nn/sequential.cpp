#include "models/nn/sequential.h"

#include <optional>
#include <typeinfo>

#include "comm/distributed/upsample.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad::nn {
namespace {

// The module if its exact type is Layer, else null: a derived class may do something else.
template <class Layer>
Layer* as(Module& module) {
  return typeid(module) == typeid(Layer) ? static_cast<Layer*>(&module) : nullptr;
}

// The result with the activation fused into the layer's pass; none if the layer is of another type or already has an activation.
template <class Layer>
std::optional<Tensor> activated(Module& module, const Tensor& x, Activation activation) {
  auto* layer = as<Layer>(module);
  if (!layer || layer->activation() != Activation::none) return std::nullopt;
  return (*layer)(x, activation);
}

Pool3d* pool_of(Module& module) {
  if (auto* average = as<AvgPool3d>(module)) return average;
  if (auto* maximum = as<MaxPool3d>(module)) return maximum;
  return as<Pool3d>(module);
}

}  // namespace

Tensor Activate::operator()(const Tensor& x) { return activate(x, activation_); }

Tensor Pool3d::operator()(const Tensor& x) {
  LayerScope scope(path(), pooling_ == Pooling::average ? "avg_pool" : "max_pool");
  return scope.done(pooling_ == Pooling::average ? avg_pool(x, a_) : max_pool(x, a_));
}

Tensor AdaptivePool3d::operator()(const Tensor& x) {
  const bool average = a_.pooling == Pooling::average;
  LayerScope scope(path(), average ? "adaptive_avg_pool" : "adaptive_max_pool");
  return scope.done(average ? adaptive_avg_pool(x, a_.extents) : adaptive_max_pool(x, a_.extents));
}

Tensor GlobalAvgPool::operator()(const Tensor& x) { return global_avg_pool(x); }
Tensor Flatten::operator()(const Tensor& x) { return flatten(x); }

Tensor Sequential::operator()(const Tensor& x) {
  Tensor y = x;
  const auto at = [&](std::size_t i) { return i < layers_.size() ? layers_[i].get() : nullptr; };
  for (std::size_t i = 0; i < layers_.size();) {
    auto& layer = *layers_[i];
    auto* activate = at(i + 1) ? as<Activate>(*at(i + 1)) : nullptr;
    if (auto* conv = as<Conv3d>(layer)) {
      const bool fits = activate && conv->activation() == Activation::none;
      const auto activation = fits ? activate->activation() : conv->activation();
      const std::size_t behind = i + (fits ? 2 : 1);
      if (auto* pool = at(behind) ? pool_of(*at(behind)) : nullptr) {
        y = conv->pooled(y, pool->path(), pool->pooling(), pool->attributes(), activation);
        i = behind + 1;
        continue;
      }
    }
    std::optional<Tensor> both;
    if (activate) {
      both = activated<Conv3d>(layer, y, activate->activation());
      if (!both) both = activated<ConvTranspose3d>(layer, y, activate->activation());
      if (!both) both = activated<BatchNorm>(layer, y, activate->activation());
      if (!both) both = activated<Linear>(layer, y, activate->activation());
    }
    y = both ? *both : layer(y);
    i += both ? 2 : 1;
  }
  return y;
}

std::unique_ptr<Module> make_norm(Module& parent, const std::string& name, const NormAttributes& a) {
  using enum NormAttributes::Kind;
  if (a.kind == batch)
    return std::make_unique<BatchNorm>(parent, name,
                                       BatchNormAttributes{.momentum = a.momentum,
                                                           .epsilon = a.epsilon,
                                                           .statistics = a.statistics.value_or(StatisticsOver::all),
                                                           .activation = a.activation});
  if (a.kind == none) return std::make_unique<Activate>(parent, name, a.activation);
  return std::make_unique<GroupNorm>(parent, name,
                                     GroupNormAttributes{.groups = a.kind == instance ? 0
                                                                   : a.kind == layer  ? 1
                                                                                      : a.groups,
                                                         .epsilon = a.epsilon,
                                                         .statistics = a.statistics.value_or(StatisticsOver::spatial_group),
                                                         .activation = a.activation});
}

}  // namespace mpigrad::nn
