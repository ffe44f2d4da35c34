#pragma once

#include <string_view>

namespace mpigrad::nn {

// True if `layers` (as in LayerGrid::layers) names the layer of this path or a module that contains it.
bool names_layer(std::string_view layers, std::string_view path);

}  // namespace mpigrad::nn
