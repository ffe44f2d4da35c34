#pragma once
// Description and cost of a network without running it: the layers are laid out on the dry device, for the ranks of any grid.

#include <string>
#include <vector>

#include "models/nn/describe_options.h"
#include "models/nn/module.h"

namespace mpigrad {

struct LayerDescription {
  std::string name, kind;
  Shape out;  // global
  std::int64_t parameters = 0;
  double gflop = 0;  // forward, all ranks
  // Of one part of the batch: bytes of the result, on the rank where it is largest; halo bytes sent in a forward pass, by the
  // rank that sends most.
  std::int64_t activation_bytes = 0, halo_bytes = 0;
  // In a forward pass, by the rank that sends most: bytes of the input redistributed to the layer's own grid; bytes contributed
  // to gathers and reductions of channels, of weights and of statistics.
  std::int64_t moved_bytes = 0, collective_bytes = 0;
  int stage = 0;  // of a pipeline
};

// A stage of a pipeline; bytes of the rank with most.
struct StageDescription {
  std::string first;  // layer
  double gflop = 0;   // forward, all ranks of the stage
  std::int64_t parameter_bytes = 0, peak_bytes = 0;
  std::int64_t sent_bytes = 0;  // point to point in a training step, halos included
};

struct Description {
  Shape input;  // global, the whole batch
  GridExtents grid;
  int ranks = 1;
  std::int64_t accumulate = 1;  // parts
  DType dtype = DType::float32, compute = DType::float32;
  std::vector<LayerDescription> layers{};  // in the order in which they run
  std::vector<StageDescription> stages{};  // of a pipeline
  std::int64_t parameters = 0;             // all of the network's
  // For the whole batch and all ranks.
  double forward_gflop = 0;
  double backward_gflop = 0;  // without the gradient of the input, which training does not need
  // Per rank; the largest of all ranks.
  std::int64_t activation_bytes = 0;  // of all layers' results, of one part of the batch
  std::int64_t halo_bytes = 0;        // sent in a forward pass of one part
  std::int64_t moved_bytes = 0;       // redistributed in a forward pass of one part, where layers have grids of their own
  std::int64_t collective_bytes = 0;  // contributed to collectives in a forward pass of one part
  // In a training step: bytes sent point to point, including redistributions; bytes contributed to reductions (of gradients and
  // of statistics), each counted once however many messages it takes; bytes contributed to the other collectives.
  std::int64_t sent_bytes = 0, reduced_bytes = 0, gathered_bytes = 0;
  std::int64_t optimizer_bytes = 0;  // the optimizer's state
  std::string optimizer_work{};      // how its work is divided among ranks, in a few words
  std::int64_t peak_bytes = 0;       // tensors alive at once: parameters, optimizer state, activations, cotangents, gradients
};

// Describes a training step on one batch. `net` is fresh and is built here, on the dry device. `input` is global, [N, D, H, W,
// C]. Ranks at the corners and in the middle of the grid represent the others. Errors: more than 65,536 ranks, more ranks along
// an axis than its extent, a batch that cannot be split into equal parts.
Description describe(nn::Module& net, const Shape& input, const DescribeOptions& options = {});

// A table to read: one line per layer and a line of totals.
std::string to_string(const Description& description);
// A readable size, such as "1.5 GiB".
std::string readable_bytes(std::int64_t bytes);

}  // namespace mpigrad
