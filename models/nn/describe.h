#pragma once
// What a network is and what it costs, without running it: its layers laid out on the dry device, for ranks of any grid.

#include <string>
#include <vector>

#include "models/nn/describe_options.h"
#include "models/nn/module.h"

namespace mpigrad {

struct LayerDescription {
  std::string name, kind;
  Shape out;  // global
  std::int64_t parameters = 0;
  double gflop = 0;  // forward, of all ranks
  // Of one part of the batch: of its result, on the rank where it is largest; sent in a forward pass, by the rank that sends
  // most.
  std::int64_t activation_bytes = 0, halo_bytes = 0;
  // In a forward pass, by the rank that sends most: of its input, to where the layer's own grid has it; handed to gathers and
  // reductions of channels, of weights, and of statistics.
  std::int64_t moved_bytes = 0, collective_bytes = 0;
};

struct Description {
  Shape input;  // global, the whole batch
  GridExtents grid;
  int ranks = 1;
  std::int64_t accumulate = 1;  // parts
  DType dtype = DType::float32, compute = DType::float32;
  std::vector<LayerDescription> layers{};  // in the order in which they run
  std::int64_t parameters = 0;             // all of the network's
  // Of the whole batch and all ranks.
  double forward_gflop = 0;
  double backward_gflop = 0;  // without the gradient of the input, which training does not need
  // Per rank, largest among them.
  std::int64_t activation_bytes = 0;  // of all layers' results, of one part of the batch
  std::int64_t halo_bytes = 0;        // sent in a forward pass of one part
  std::int64_t moved_bytes = 0;       // so, where layers have grids of their own
  std::int64_t collective_bytes = 0;  // so, handed to collectives
  // In a training step: point to point, redistributions included; handed to reductions (of gradients and of statistics), each
  // counted once however many messages it takes; handed to the other collectives.
  std::int64_t sent_bytes = 0, reduced_bytes = 0, gathered_bytes = 0;
  std::int64_t optimizer_bytes = 0;  // of its state
  std::int64_t peak_bytes = 0;       // tensors alive at once: parameters, the optimizer's, activations, cotangents, gradients
};

// A training step of a batch. `net` is fresh and is built here, on the dry device. `input` is global, [N, D, H, W, C]. Ranks at
// the corners and in the middle of the grid stand for the others. Errors: more than 65,536 ranks, more ranks along an axis than
// it has places, a batch that cannot be computed in equal parts.
Description describe(nn::Module& net, const Shape& input, const DescribeOptions& options = {});

// For people: one line per layer and a line of totals.
std::string to_string(const Description& description);
// "1.5 GiB"
std::string readable_bytes(std::int64_t bytes);

}  // namespace mpigrad
