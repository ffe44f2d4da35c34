#pragma once
// Layers and their times, read from TOML files, for networks that are not written with this library.
//
// clang-format off
//   [[layer]]
//   name = "conv1"
//   kind = "conv"              # conv, conv_transpose, linear, max_pool, avg_pool, batch_norm, group_norm, activation, dropout, other
//   in = [1, 227, 227, 3]      # of one sample: depth, height, width, channels; a product of features: [1, 1, 1, features]
//   out = [1, 55, 55, 96]
//   kernel = [1, 11, 11]       # of convolutions and poolings; others have none
//   weights = 34944            # elements, biases included; may be left out where there is no product
//   forward_flops = 2.1e8      # of one sample; may be left out: see below
// clang-format on
//
// Floating-point operations that are not given are 2 * places * weights for a convolution or product, where weights are at most
// kernel * channels in * channels out (fewer with groups; biases are not counted) and places are those of the output, for a
// transposed convolution those of the input; 0 for other kinds. A backward pass has twice those of a forward pass.
//
//   [[layer]]               # of a file of times: one for each layer
//   name = "conv1"
//   forward = 1.2e-4        # seconds per sample
//   backward = 2.5e-4
//   update = 1e-6           # seconds per iteration

#include <filesystem>
#include <vector>

#include "examples/studies/plan/planner/formulas/oracle.h"
#include "examples/studies/plan/planner/layers.h"

namespace mpigrad::plan {

// UsageError, with file and line: no file or not TOML, keys that are unknown, missing or of another type, impossible numbers, two
// layers of one name, no layers.
std::vector<planner::Layer> read_layer_file(const std::filesystem::path& path);
// In the order of `layers`. UsageError: as above, and names that are not the layers'.
std::vector<planner::LayerTime> read_times(const std::filesystem::path& path, const std::vector<planner::Layer>& layers);

}  // namespace mpigrad::plan
