#pragma once
// Writes networks as ONNX files, for runtimes such as ONNX Runtime, TensorRT, OpenVINO.

#include <cstdint>
#include <filesystem>

#include "models/nn/module.h"

namespace mpigrad {

struct OnnxOptions {
  // The file accepts any number of samples; else only the number in the shape.
  bool any_batch = true;
  bool overwrite = false;
};

// Exports `net` in evaluation mode for inputs of this shape, [N, D, H, W, C] (or any other), as operators of opset 17. If input
// `x` and output `y` have five dimensions, their channels are second, [N, C, D, H, W], as in PyTorch. Everything that does not
// depend on the input is computed in advance: norms with running statistics are one product and one sum. Weights keep their
// types. Runs the network once, on the CPU, with replicated weights, and restores its mode. Slopes of activations are rounded to
// 32 bits, as the format requires. Errors: an op without a counterpart, by name; parameters on a GPU; with any_batch an op that
// mixes samples; a file that exists already, cannot be written, or would exceed the 2 GiB of protobuf; a build without protobuf.
void export_onnx(const std::filesystem::path& path, nn::Module& net, const Shape& input, const OnnxOptions& options = {});

bool can_export_onnx();  // false: built without protobuf

}  // namespace mpigrad
