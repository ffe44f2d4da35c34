#pragma once
// Execution plans: the engines that cuDNN proposes for a graph, those that keep to the precision asked for, and the first or the
// fastest of them that it can build.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ops/backends/cudnn/cudnn_graph.h"

namespace mpigrad::cuda {

struct CudnnPlan {
  std::unique_ptr<Descriptor> plan;
  std::vector<Operand> operands;
  std::int64_t workspace = 0;  // bytes
  std::int64_t engine = -1;    // cuDNN's number of it
  std::int64_t place = -1;     // among the proposals for the graph, which one version of cuDNN repeats for one GPU
  bool compiled = false;       // its kernel was compiled as the plan was made, in 0.1 to 1.5 s
  bool fast = false;           // by its notes, see fast_enough()
  std::vector<cudnnBackendNumericalNote_t> notes;  // of its precision
  bool has(cudnnBackendNumericalNote_t note) const;
};

// Whether an engine with these notes may compute the call: float32 is float32 unless TF32 is allowed, sums of 16-bit products are
// float32, transforms that lose digits (Winograd, FFT) are for TF32 and 16-bit types only.
bool precise_enough(const ConvCall& call, std::span<const cudnnBackendNumericalNote_t> notes);

// Engine 0 takes anything and is rarely fast; 16-bit types and TF32 are for tensor cores.
bool fast_enough(const ConvCall& call, std::int64_t engine, std::span<const cudnnBackendNumericalNote_t> notes);

// Which plans are looked for.
struct Search {
  std::size_t most = 1;                            // plans that are asked for: no more are built than it takes to find so many
                                                   // fast ones within `workspace`
  std::size_t built = 8;                           // at most so many are built
  std::size_t compiled = 0;                        // of which so many at run time
  std::int64_t workspace = std::int64_t{1} << 30;  // bytes; plans that need more come last
  std::optional<std::int64_t> engine{};            // no other
  std::optional<std::int64_t> place{};             // no other proposal
  bool defective = false;                          // also engines that are known to compute such a call wrongly
};

// At most search.most plans: fast ones first, then others, then those that need more memory than search.workspace, each in
// cuDNN's order. None if no engine supports the call, and then `why` is cuDNN's text.
std::vector<CudnnPlan> plans_of(const ConvCall& call, const Target& target, const Search& search, std::string& why);

struct ConvOperands {
  void *image = nullptr, *weights = nullptr, *outputs = nullptr;
  const void* bias = nullptr;
};
void execute(cudnnHandle_t handle, const CudnnPlan& plan, const ConvOperands& operands, void* workspace);

}  // namespace mpigrad::cuda
