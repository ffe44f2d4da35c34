#pragma once
// Networks as ONNX files, for programs that run them: ONNX Runtime, TensorRT, OpenVINO.

#include <cstdint>
#include <filesystem>

#include "models/nn/module.h"

namespace mpigrad {

struct OnnxOptions {
  // With any number of samples; else with the number in the shape.
  bool any_batch = true;
  bool overwrite = false;
};

// What `net` computes in evaluation mode for inputs of that shape, [N, D, H, W, C] (or any other), as operators of opset 17.
// Input `x` and output `y` have their channels second, [N, C, D, H, W], as PyTorch's do, where they have five dimensions.
// Everything that does not depend on the input is computed beforehand: norms with running statistics are one product and one sum.
// Weights have the type that they have in `net`. Runs the network once, on the CPU, with weights that every rank has whole;
// leaves it in the mode in which it was. Slopes of activations have 32 bits, as the format has
// them. Errors: an op that has no counterpart, by name; parameters on a GPU; what mixes samples, for any number of them; a file
// that is there already, cannot be written, or would be larger than the 2 GiB of protobuf; a build without protobuf.
void export_onnx(const std::filesystem::path& path, nn::Module& net, const Shape& input, const OnnxOptions& options = {});

bool can_export_onnx();  // false: built without protobuf

}  // namespace mpigrad
