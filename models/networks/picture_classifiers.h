#pragma once
// Networks for pictures [N, 1, H, W, C] in the style of published ones, of any width; for pictures of any extents.

#include <fmt/format.h>

#include <string>
#include <utility>

#include "models/networks/classifier.h"
#include "models/nn/sequential.h"

namespace mpigrad {

// VGG (Simonyan and Zisserman 2014), but with batch norm, the mean over the last image in place of two wide linear layers, and
// four stages: two convolutions 3 x 3 each, then maxima of 2 x 2. Stages have 1, 2, 4 and 8 times `filters` channels.
struct VggClassifier : nn::Sequential {
  explicit VggClassifier(const ClassifierOptions& o) {
    auto norm = o.norm;
    norm.activation = Activation::relu;
    for (int stage = 0; stage < 4; ++stage) {
      for (int i = 1; i <= 2; ++i) {
        const auto name = fmt::format("{}_{}", stage + 1, i);
        add<nn::Conv3d>("conv" + name, {.out = o.filters << stage,
                                        .kernel = {1, 3, 3},
                                        .padding = {0, 1, 1},
                                        .bias = false,
                                        .start = nn::WeightStart::he_fan_out});
        add<nn::BatchNorm>("norm" + name, norm);
      }
      add<nn::MaxPool3d>(fmt::format("pool{}", stage + 1), {.kernel = {1, 2, 2}, .stride = {1, 2, 2}});
    }
    add<nn::GlobalAvgPool>("mean");
    add<nn::Dropout>("dropout", {.keep = o.keep});
    add<nn::Linear>("linear", {.out = o.outputs, .whole = true});
  }
};

// A regressor of parameters of lattices: convolutions 9 x 9 and 7 x 7 with batch norm and ReLU, each followed by means over 4 x
// 4, the mean over the remaining image, a linear layer. Kernels, 64 filters and average pools follow a publication that is not in
// our hands; batch norm, the windows of the pools and the end are ours.
struct LatticeRegressor : nn::Sequential {
  explicit LatticeRegressor(const ClassifierOptions& o) {
    auto norm = o.norm;
    norm.activation = Activation::relu;
    for (const auto& [name, kernel] : {std::pair{"1", 9}, {"2", 7}}) {
      add<nn::Conv3d>(std::string("conv") + name, {.out = o.filters,
                                                   .kernel = {1, kernel, kernel},
                                                   .padding = {0, kernel / 2, kernel / 2},
                                                   .bias = false,
                                                   .start = nn::WeightStart::he_fan_out});
      add<nn::BatchNorm>(std::string("norm") + name, norm);
      add<nn::AvgPool3d>(std::string("pool") + name, {.kernel = {1, 4, 4}, .stride = {1, 4, 4}});
    }
    add<nn::GlobalAvgPool>("mean");
    add<nn::Linear>("linear", {.out = o.outputs, .whole = true});
  }
};

}  // namespace mpigrad
