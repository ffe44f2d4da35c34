#pragma once
// What a network is and what it costs, without running it: its layers laid out on the dry device, for ranks of any grid.

#include <optional>
#include <string>
#include <vector>

#include "comm/grid.h"
#include "models/module.h"

namespace mpigrad {

struct DescribeOptions {
  GridExtents grid{};
  DType dtype = DType::float32;    // of the input and of parameters
  std::optional<DType> compute{};  // see nn::BuildOptions
};

struct LayerDescription {
  std::string name, kind;
  Shape out;  // global
  std::int64_t parameters = 0;
  double gflop = 0;                   // forward, of all ranks
  std::int64_t activation_bytes = 0;  // of its result, on the rank where it is largest
  std::int64_t halo_bytes = 0;        // sent in a forward pass, by the rank that sends most
};

struct Description {
  Shape input;  // global
  GridExtents grid;
  int ranks = 1;
  DType dtype = DType::float32, compute = DType::float32;
  std::vector<LayerDescription> layers{};  // in the order in which they run
  std::int64_t parameters = 0;             // all of the network's
  double forward_gflop = 0;
  double backward_gflop = 0;  // without the gradient of the input, which training does not need
  // Per rank, largest among them.
  std::int64_t activation_bytes = 0;  // of all layers' results
  std::int64_t halo_bytes = 0;        // sent in a forward pass
  std::int64_t sent_bytes = 0;        // point to point in forward and backward passes, redistributions included
  std::int64_t peak_bytes = 0;        // tensors alive at once in a training step: parameters, activations, cotangents, gradients
};

// `net` is fresh and is built here, on the dry device. `input` is global, [N, D, H, W, C]. Ranks at the corners and in the middle
// of the grid stand for the others. Errors: more than 65,536 ranks, more ranks along an axis than it has places.
Description describe(nn::Module& net, const Shape& input, const DescribeOptions& options = {});

// For people: one line per layer and a line of totals.
std::string to_string(const Description& description);
// "1.5 GiB"
std::string readable_bytes(std::int64_t bytes);

}  // namespace mpigrad
