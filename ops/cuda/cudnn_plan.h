#pragma once
// Execution plans: the engines that cuDNN proposes for a graph, those that keep to the precision asked for, and the first or the
// fastest of them that it can build.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ops/cuda/cudnn_graph.h"

namespace mpigrad::cuda {

struct CudnnPlan {
  std::unique_ptr<Descriptor> plan;
  std::vector<Operand> operands;
  std::int64_t workspace = 0;                      // bytes
  std::int64_t engine = -1;                        // cuDNN's number of it
  std::vector<cudnnBackendNumericalNote_t> notes;  // of its precision
};

// Whether an engine with these notes may compute the call: float32 is float32 unless TF32 is allowed, sums of 16-bit products are
// float32, transforms that lose digits (Winograd, FFT) are for TF32 and 16-bit types only.
bool precise_enough(const ConvCall& call, std::span<const cudnnBackendNumericalNote_t> notes);

// The plans that cuDNN proposes, in its order, at most `most`; none if no engine supports the call, and then `why` is its text.
// Those that need more memory than `workspace` come last.
std::vector<CudnnPlan> plans_of(const ConvCall& call, const Target& target, std::size_t most, std::int64_t workspace,
                                std::string& why);

struct ConvOperands {
  void *image = nullptr, *weights = nullptr, *outputs = nullptr;
  const void* bias = nullptr;
};
void execute(cudnnHandle_t handle, const CudnnPlan& plan, const ConvOperands& operands, void* workspace);

}  // namespace mpigrad::cuda
