#pragma once
// The networks of Kahira et al. (2021) as their authors count them: convolutions and products without biases, norms or shortcuts.

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

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

}  // namespace mpigrad::planner
