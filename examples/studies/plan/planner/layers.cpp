#include "examples/studies/plan/planner/layers.h"

#include <algorithm>

#include "models/nn/step_trace.h"

namespace mpigrad::planner {
namespace {

// [N, D, H, W, C], or [N, C].
void take(const Shape& shape, std::array<std::int64_t, 3>& extents, std::int64_t& channels) {
  if (shape.rank() == 0) return;
  channels = shape.back();
  extents = {1, 1, 1};
  if (shape.rank() == 5)
    for (int d = 0; d < 3; ++d) extents[static_cast<std::size_t>(d)] = shape[d + 1];
}

double elements(const std::array<std::int64_t, 3>& extents, std::int64_t channels) {
  double product = static_cast<double>(channels);
  for (const auto extent : extents) product *= static_cast<double>(extent);
  return product;
}

bool is_layers_product(std::string_view op) { return op == "conv" || op == "conv_bias_activation" || op == "conv_data"; }

}  // namespace

std::vector<Layer> read_layers(nn::Module& net, const Shape& input) {
  require(input.rank() == 5 && input[0] == 1, "[planner] the input of one sample is [1, D, H, W, C], got {}", input);
  const DescribeOptions one_rank;
  const auto trace = trace_step(net, input, one_rank, 0, 1, {.events = true});
  std::vector<Layer> layers(trace.layers.size());
  std::vector<bool> read(layers.size()), product(layers.size());
  for (const auto& event : trace.events) {
    if (event.layer < 0) continue;
    const auto i = static_cast<std::size_t>(event.layer);
    auto& layer = layers[i];
    if (event.phase == StepEvent::Phase::backward) layer.backward_flops += event.flops;
    if (event.phase != StepEvent::Phase::forward || event.in.empty()) continue;
    if (!product[i] && is_layers_product(event.op) && event.in.size() > 1) {
      const auto &x = event.in[0].shape, &w = event.in[1].shape;
      take(x, layer.in_extents, layer.in_channels);
      for (int d = 0; w.rank() == 5 && d < 3; ++d) layer.kernel[static_cast<std::size_t>(d)] = w[d + 1];
      product[i] = read[i] = true;
    } else if (!read[i] && event.in[0].shape.rank() >= 2) {
      take(event.in[0].shape, layer.in_extents, layer.in_channels);
      read[i] = true;
    }
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    auto& layer = layers[i];
    const auto& record = trace.layers[i];
    layer.name = record.name, layer.kind = record.kind;
    layer.weights = static_cast<double>(record.parameters);
    layer.forward_flops = record.flops;
    take(record.out, layer.out_extents, layer.out_channels);
    layer.inputs = elements(layer.in_extents, layer.in_channels);
    layer.outputs = elements(layer.out_extents, layer.out_channels);
  }
  return layers;
}

}  // namespace mpigrad::planner
