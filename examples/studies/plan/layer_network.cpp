#include "examples/studies/plan/layer_network.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "models/nn/sequential.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::plan {
namespace {

using tool::UsageError;

[[noreturn]] void refuse(const std::string& file, const planner::Layer& layer, const std::string& why) {
  throw UsageError(fmt::format("{}: layer '{}' {}", file, layer.name, why));
}

struct Window {
  Triple stride = 1, padding = 0, output_padding = 0;
};

// Strides near the ratio of two extents.
std::vector<std::int64_t> strides_near(std::int64_t larger, std::int64_t smaller) {
  const auto ratio = larger / smaller;
  std::vector<std::int64_t> strides{std::max<std::int64_t>(1, ratio), ratio + 1};
  if (ratio > 1) strides.push_back(ratio - 1);
  // A kernel without padding skips a part of the input, which the ratio attributes to the stride.
  if (smaller > 1) strides.push_back(std::max<std::int64_t>(1, (larger - 1) / (smaller - 1)));
  return strides;
}

struct Along {
  std::int64_t stride = 1, padding = 0, output_padding = 0;
};

// The same padding on both sides and, if possible, a last window that ends where the padded input does.
std::optional<Along> find(std::int64_t in, std::int64_t out, std::int64_t kernel) {
  for (const bool exact : {true, false})
    for (const auto stride : strides_near(in, out))
      for (std::int64_t padding = kernel / 2; padding >= 0; --padding) {
        const auto room = in + 2 * padding - kernel;
        if (room >= 0 && room / stride + 1 == out && (!exact || room % stride == 0)) return Along{stride, padding};
      }
  return std::nullopt;
}

std::optional<Along> find_transposed(std::int64_t in, std::int64_t out, std::int64_t kernel) {
  for (const auto stride : strides_near(out, in))
    for (std::int64_t padding = kernel / 2; padding >= 0; --padding) {
      const auto rest = out - ((in - 1) * stride - 2 * padding + kernel);
      if (rest >= 0 && rest < stride) return Along{stride, padding, rest};
    }
  return std::nullopt;
}

Window window_of(const std::string& file, const planner::Layer& layer) {
  Window window;
  for (std::size_t d = 0; d < 3; ++d) {
    const auto in = layer.in_extents[d], out = layer.out_extents[d], kernel = layer.kernel[d];
    const auto found = layer.kind == "conv_transpose" ? find_transposed(in, out, kernel) : find(in, out, kernel);
    if (!found)
      refuse(file, layer, fmt::format("gives {} places of {}: no stride and padding of a kernel of {} do", out, in, kernel));
    window.stride[d] = found->stride, window.padding[d] = found->padding, window.output_padding[d] = found->output_padding;
  }
  return window;
}

struct Weights {
  std::int64_t groups = 1;
  bool bias = true;
};

Weights weights_of(const std::string& file, const planner::Layer& layer, double in, double out) {
  const auto pairs = static_cast<double>(layer.kernel[0] * layer.kernel[1] * layer.kernel[2]) * in * out;
  const auto most = std::gcd(static_cast<std::int64_t>(in), static_cast<std::int64_t>(out));
  for (std::int64_t groups = 1; groups <= (layer.kind == "linear" ? 1 : most); ++groups) {
    if (most % groups != 0) continue;
    const auto of_groups = pairs / static_cast<double>(groups);
    if (layer.weights == of_groups + out || layer.weights == of_groups) return {groups, layer.weights != of_groups};
  }
  refuse(file, layer,
         fmt::format("has {:.0f} weights, where its kernel and channels make {:.0f}, {:.0f} with biases, or those of groups",
                     layer.weights, pairs, pairs + out));
}

bool same_shape(const planner::Layer& layer) {
  return layer.in_extents == layer.out_extents && layer.in_channels == layer.out_channels;
}

void add(nn::Sequential& net, const std::string& file, const planner::Layer& layer, bool& flat) {
  const auto& name = layer.name;
  if (layer.kind == "linear") {
    if (layer.out_extents != std::array<std::int64_t, 3>{1, 1, 1})
      refuse(file, layer, "gives features: out is [1, 1, 1, features]");
    if (!flat) net.add<nn::Flatten>(name + " input");
    const auto weights = weights_of(file, layer, layer.inputs, layer.outputs);
    net.add<nn::Linear>(name, {.out = layer.out_channels, .bias = weights.bias});
    flat = true;
    return;
  }
  const bool window = layer.kind.starts_with("conv") || layer.kind.ends_with("_pool");
  if (window && flat) refuse(file, layer, "has a window, where the layers before it have made features");
  const Triple kernel(layer.kernel[0], layer.kernel[1], layer.kernel[2]);
  const auto in = static_cast<double>(layer.in_channels), out = static_cast<double>(layer.out_channels);
  if (layer.kind == "conv") {
    const auto w = window_of(file, layer);
    const auto weights = weights_of(file, layer, in, out);
    net.add<nn::Conv3d>(name, {.out = layer.out_channels,
                               .kernel = kernel,
                               .stride = w.stride,
                               .padding = w.padding,
                               .groups = weights.groups,
                               .bias = weights.bias});
    return;
  }
  if (layer.kind == "conv_transpose") {
    const auto w = window_of(file, layer);
    const auto weights = weights_of(file, layer, in, out);
    net.add<nn::ConvTranspose3d>(name, {.out = layer.out_channels,
                                        .kernel = kernel,
                                        .stride = w.stride,
                                        .padding = w.padding,
                                        .output_padding = w.output_padding,
                                        .groups = weights.groups,
                                        .bias = weights.bias});
    return;
  }
  if (layer.in_channels != layer.out_channels) refuse(file, layer, "changes channels, which its kind does not");
  if (window) {
    const auto w = window_of(file, layer);
    const PoolAttributes pool{.kernel = kernel, .stride = w.stride, .padding = w.padding};
    if (layer.kind == "max_pool") net.add<nn::MaxPool3d>(name, pool);
    else net.add<nn::AvgPool3d>(name, pool);
    return;
  }
  if (!same_shape(layer)) refuse(file, layer, "changes extents, which its kind does not");
  const bool affine = layer.weights > 0;
  if (layer.kind == "batch_norm") net.add<nn::BatchNorm>(name, {.affine = affine});
  else if (layer.kind.ends_with("_norm"))
    net.add<nn::GroupNorm>(name, {.groups = layer.kind == "instance_norm"                              ? 0
                                            : layer.kind == "group_norm" && layer.in_channels % 8 == 0 ? 8
                                                                                                       : 1,
                                  .affine = affine});
  else if (layer.kind == "activation") net.add<nn::Activate>(name, Activation::relu);
  else if (layer.kind == "dropout") net.add<nn::Dropout>(name, {});
}

}  // namespace

Shape input_of(const std::vector<planner::Layer>& layers) {
  const auto& e = layers.front().in_extents;
  return {1, e[0], e[1], e[2], layers.front().in_channels};
}

std::unique_ptr<nn::Module> make_network(const std::string& file, const std::vector<planner::Layer>& layers) {
  auto net = std::make_unique<nn::Sequential>();
  bool flat = false;
  const planner::Layer* before = nullptr;
  for (const auto& layer : layers) {
    const bool joins = !before || (layer.kind == "linear"
                                       ? layer.inputs == before->outputs
                                       : layer.in_extents == before->out_extents && layer.in_channels == before->out_channels);
    if (!joins)
      refuse(file, layer,
             fmt::format("does not take what '{}' gives: a layer file's network is a chain, others join by register_network()",
                         before->name));
    add(*net, file, layer, flat);
    before = &layer;
  }
  return net;
}

}  // namespace mpigrad::plan
