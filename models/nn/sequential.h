#pragma once
// Modules made of modules, and functions as modules:
//
//   struct Net : nn::Sequential {
//     Net() {
//       add<nn::Conv3d>("conv", {.out = 16, .kernel = 3, .padding = 1});
//       add<nn::Activate>("relu", Activation::relu);
//       add<nn::AvgPool3d>("pool", {.kernel = 2, .stride = 2});
//       add<nn::GlobalAvgPool>("mean");
//       add<nn::Linear>("linear", {.out = 4});
//     }
//   };

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/nn/layers.h"

namespace mpigrad::nn {

// activation(x)
class Activate : public Module {
 public:
  using Attributes = Activation;
  Activate(Module& parent, const std::string& name, Activation activation) : Module(parent, name), activation_(activation) {}
  Tensor operator()(const Tensor& x) override;
  Activation activation() const { return activation_; }

 private:
  Activation activation_;
};

// [N, D, H, W, C] -> [N, D', H', W', C]; shapes in ops/pool/pool.h.
class Pool3d : public Module {
 public:
  Pool3d(Module& parent, const std::string& name, Pooling pooling, const PoolAttributes& attributes)
      : Module(parent, name), pooling_(pooling), a_(attributes) {}
  Tensor operator()(const Tensor& x) override;
  Pooling pooling() const { return pooling_; }
  const PoolAttributes& attributes() const { return a_; }

 private:
  Pooling pooling_;
  PoolAttributes a_;
};
class AvgPool3d : public Pool3d {
 public:
  using Attributes = PoolAttributes;
  AvgPool3d(Module& parent, const std::string& name, const PoolAttributes& attributes)
      : Pool3d(parent, name, Pooling::average, attributes) {}
};
class MaxPool3d : public Pool3d {
 public:
  using Attributes = PoolAttributes;
  MaxPool3d(Module& parent, const std::string& name, const PoolAttributes& attributes)
      : Pool3d(parent, name, Pooling::maximum, attributes) {}
};
struct AdaptivePoolAttributes {
  Triple extents = 1;
  Pooling pooling = Pooling::average;
};
// [N, D, H, W, C] -> [N, extents, C], by the windows of adaptive_avg_pool() (comm/distributed/upsample.h).
class AdaptivePool3d : public Module {
 public:
  using Attributes = AdaptivePoolAttributes;
  AdaptivePool3d(Module& parent, const std::string& name, const AdaptivePoolAttributes& attributes = {})
      : Module(parent, name), a_(attributes) {}
  Tensor operator()(const Tensor& x) override;

 private:
  AdaptivePoolAttributes a_;
};
// [N, D, H, W, C] -> [N, C]
class GlobalAvgPool : public Module {
 public:
  using Module::Module;
  Tensor operator()(const Tensor& x) override;
};
// [N, ...] -> [N, product]
class Flatten : public Module {
 public:
  using Module::Module;
  Tensor operator()(const Tensor& x) override;
};

// Modules of one kind, called by their owner: nn::List<nn::Conv3d> convs; convs.add(*this, "conv1", {.out = 8});
template <class Layer>
class List {
 public:
  template <class L = Layer>
  Layer& add(Module& parent, const std::string& name, const typename L::Attributes& attributes) {
    return *layers_.emplace_back(std::make_unique<Layer>(parent, name, attributes));
  }
  Layer& add(Module& parent, const std::string& name) { return *layers_.emplace_back(std::make_unique<Layer>(parent, name)); }
  std::size_t size() const { return layers_.size(); }
  Layer& operator[](std::size_t i) { return *layers_.at(i); }

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
};

// One of the norms, chosen when the network is made.
struct NormAttributes {
  enum class Kind : std::uint8_t { none, batch, instance, group, layer };
  Kind kind = Kind::batch;
  std::int64_t groups = 8;  // for group
  double momentum = 0.9;    // for batch
  double epsilon = 1e-5;
  // none: over all ranks for batch, else over the ranks that share a sample
  std::optional<StatisticsOver> statistics{};
  Activation activation = Activation::none;
};
std::unique_ptr<Module> make_norm(Module& parent, const std::string& name, const NormAttributes& attributes);

// Runs layers one after the other. An activation is fused into the layer before it where that layer can apply it in its own pass,
// and pooling after a convolution runs as Conv3d::pooled: the numbers are the same up to rounding, the memory is less.
class Sequential : public Module {
 public:
  using Module::Module;

  // Adds a layer with that name, made from its attributes or from the other arguments that its constructor takes after the name.
  template <class Layer>
  Layer& add(const std::string& name, const typename Layer::Attributes& attributes) {
    return own(std::make_unique<Layer>(*this, name, attributes));
  }
  template <class Layer, class... Arguments>
  Layer& add(const std::string& name, Arguments&&... arguments) {
    return own(std::make_unique<Layer>(*this, name, std::forward<Arguments>(arguments)...));
  }
  Tensor operator()(const Tensor& x) override;
  std::size_t size() const { return layers_.size(); }
  Module& operator[](std::size_t i) { return *layers_.at(i); }

 private:
  template <class Layer>
  Layer& own(std::unique_ptr<Layer> layer) {
    auto& made = *layer;
    layers_.push_back(std::move(layer));
    return made;
  }
  std::vector<std::unique_ptr<Module>> layers_;
};

}  // namespace mpigrad::nn
