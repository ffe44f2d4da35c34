#include "models/nn/summary.h"

#include <algorithm>

#include "framework/engine/tape.h"

namespace mpigrad::nn {

std::vector<LayerRecord> summarise(Module& net, const std::vector<Shape>& inputs) {
  UseDevice dry(DeviceKind::dry);
  LayerTrace trace;
  const auto declared = net.rehearse(inputs);
  auto rows = trace.layers;
  // A layer that records itself has the path of its parameters as its name. It may have run several times.
  for (const auto& [name, shape] : declared) {
    const auto path = name.substr(0, std::min(name.rfind('.'), name.size()));
    const bool counted =
        std::any_of(trace.layers.begin(), trace.layers.end(), [&](const LayerRecord& layer) { return layer.name == path; });
    if (!counted) rows.push_back({.name = name, .kind = "parameters", .out = shape, .parameters = shape.elements()});
  }
  // Count the parameters of a layer that is called again only once.
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (rows[i].name == rows[j].name && rows[i].kind == rows[j].kind) rows[i].parameters = 0;
  return rows;
}

std::string summary(Module& net, const std::vector<Shape>& inputs) {
  const auto rows = summarise(net, inputs);
  std::size_t width = 5;
  for (const auto& row : rows) width = std::max(width, row.name.size());
  auto text = fmt::format("{:<{}}  {:<14}  {:<24} {:>12} {:>10}\n", "layer", width, "kind", "output", "parameters", "GFLOP");
  std::int64_t parameters = 0;
  double flops = 0;
  for (const auto& row : rows) {
    text += fmt::format("{:<{}}  {:<14}  {:<24} {:>12} {:>10.3f}\n", row.name, width, row.kind, to_string(row.out),
                        row.parameters, row.flops * 1e-9);
    parameters += row.parameters, flops += row.flops;
  }
  return text + fmt::format("{:<{}}  {:<14}  {:<24} {:>12} {:>10.3f}\n", "all", width, "", "", parameters, flops * 1e-9);
}

}  // namespace mpigrad::nn
