#pragma once
// The networks of Kahira et al. (2021) as their authors count them: convolutions and products without biases, norms or shortcuts.

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "examples/studies/plan/planner/formulas/oracle.h"
#include "examples/studies/plan/planner/layers.h"

namespace mpigrad::planner {

inline Layer layer(const char* kind, std::array<std::int64_t, 4> in, std::array<std::int64_t, 4> out, std::int64_t kernel,
                   double weights) {
  Layer made;
  made.name = made.kind = kind;
  made.in_extents = {in[0], in[1], in[2]}, made.in_channels = in[3];
  made.out_extents = {out[0], out[1], out[2]}, made.out_channels = out[3];
  made.kernel = {1, kernel, kernel};
  made.inputs = static_cast<double>(in[0] * in[1] * in[2] * in[3]);
  made.outputs = static_cast<double>(out[0] * out[1] * out[2] * out[3]);
  made.weights = weights;
  made.forward_flops = 2 * weights * static_cast<double>(out[0] * out[1] * out[2]);
  made.backward_flops = 2 * made.forward_flops;
  return made;
}
inline Layer conv(std::int64_t n, std::int64_t channels, std::int64_t kernel, std::int64_t outputs, std::int64_t filters) {
  return layer("conv", {1, n, n, channels}, {1, outputs, outputs, filters}, kernel,
               static_cast<double>(kernel * kernel * channels * filters));
}
inline Layer linear(std::int64_t in, std::int64_t out) {
  return layer("linear", {1, 1, 1, in}, {1, 1, 1, out}, 1, static_cast<double>(in * out));
}

// Fifty layers with 22,734,016 weights, which are the authors' 90,936,064 bytes. The first result has 113 x 113 places (of images
// of 226 x 226): with 112 x 112 the printed row of filter parallelism is missed by 2 s.
inline std::vector<Layer> paradl_resnet50() {
  std::vector<Layer> layers{conv(226, 3, 7, 113, 64)};
  std::int64_t channels = 64, n = 56, width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int b = 0; b < blocks; ++b) {
      const auto before = n;
      if (b == 0 && width > 64) n /= 2;
      layers.push_back(conv(before, channels, 1, n, width));
      layers.push_back(conv(n, width, 3, n, width));
      layers.push_back(conv(n, width, 1, n, 4 * width));
      channels = 4 * width;
    }
    width *= 2;
  }
  layers.push_back(linear(2048, 1000));
  return layers;
}

inline std::vector<Layer> paradl_vgg16() {
  std::vector<Layer> layers;
  std::int64_t n = 224, channels = 3;
  const std::pair<int, std::int64_t> stages[] = {{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}};
  for (const auto& [convolutions, filters] : stages) {
    for (int c = 0; c < convolutions; ++c) {
      layers.push_back(conv(n, channels, 3, n, filters));
      channels = filters;
    }
    n /= 2;
  }
  for (const auto& [in, out] : {std::pair{25088, 4096}, std::pair{4096, 4096}, std::pair{4096, 1000}})
    layers.push_back(linear(in, out));
  return layers;
}

// CosmoFlow at 512^3 on ABCI: extents and seconds of a sample as the authors list them (log/ranking_log/cosmoflow.log). They give
// sums; here a third is forward, as in kahira_cosmoflow_times.toml.
struct CosmoFlow512 {
  std::vector<Layer> layers;
  std::vector<LayerTime> times;
};
inline CosmoFlow512 paradl_cosmoflow_512() {
  struct Row {
    const char* kind;
    std::int64_t in, channels, out, filters, kernel;
    double seconds;
  };
  static constexpr Row rows[] = {
      {"conv", 512, 4, 510, 16, 3, 0.967359508429},           {"activation", 510, 16, 510, 16, 1, 0.00447851623429},
      {"avg_pool", 510, 16, 255, 16, 2, 0.0716562597486},     {"conv", 255, 16, 253, 32, 3, 0.9447761751},
      {"activation", 253, 32, 253, 32, 1, 0.00109349092652},  {"avg_pool", 253, 32, 126, 32, 2, 0.0345784260354},
      {"conv", 126, 32, 62, 64, 3, 0.0556164005289},          {"activation", 62, 64, 62, 64, 1, 3.21853832111e-05},
      {"avg_pool", 62, 64, 31, 64, 2, 0.00205986452551},      {"conv", 31, 64, 29, 128, 3, 0.0227659506853},
      {"activation", 29, 128, 29, 128, 1, 6.58730246665e-06}, {"avg_pool", 29, 128, 14, 128, 2, 0.000758922930819},
      {"conv", 14, 128, 13, 256, 2, 0.002430821297},          {"activation", 13, 256, 13, 256, 1, 1.18678941484e-06},
      {"avg_pool", 13, 256, 6, 256, 2, 0.00023896115606},     {"conv", 6, 256, 5, 256, 2, 0.00027712856293},
      {"activation", 5, 256, 5, 256, 1, 6.75232939712e-08},   {"avg_pool", 5, 256, 2, 256, 2, 8.85041318739e-06},
      {"conv", 2, 256, 1, 128, 2, 1.38287706053e-06},         {"activation", 1, 128, 1, 128, 1, 2.70093175885e-10},
      {"linear", 1, 128, 1, 2048, 1, 8.29726236318e-07},      {"activation", 1, 2048, 1, 2048, 1, 4.32149081416e-09},
      {"linear", 1, 2048, 1, 256, 1, 1.65945247264e-06},      {"activation", 1, 256, 1, 256, 1, 5.40186351769e-10},
      {"linear", 1, 256, 1, 4, 1, 3.24111811062e-09}};
  CosmoFlow512 network;
  for (const auto& row : rows) {
    const bool product = std::string_view(row.kind) == "conv" || std::string_view(row.kind) == "linear";
    const auto weights = product ? row.kernel * row.kernel * row.kernel * row.channels * row.filters : 0;
    network.layers.push_back(layer(row.kind, {row.in, row.in, row.in, row.channels}, {row.out, row.out, row.out, row.filters},
                                   row.kernel, static_cast<double>(weights)));
    network.layers.back().kernel[0] = row.kernel;
    network.times.push_back({row.seconds / 3, row.seconds * 2 / 3, 0});
  }
  return network;
}

}  // namespace mpigrad::planner
