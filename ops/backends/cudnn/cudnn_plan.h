#pragma once
// Execution plans: among the engines that cuDNN proposes for a graph and that keep to the required precision, the first or the
// fastest that it can build.

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
  std::int64_t engine = -1;    // number of the engine in cuDNN
  std::int64_t place = -1;     // index among the proposals for the graph, the same for one version of cuDNN and one GPU
  bool compiled = false;       // its kernel was compiled when the plan was made, in 0.1 to 1.5 s
  bool fast = false;           // by its numerical notes, see fast_enough()
  std::vector<cudnnBackendNumericalNote_t> notes;  // on its precision
  bool has(cudnnBackendNumericalNote_t note) const;
};

// True if an engine with these notes may compute the call: float32 is float32 unless TF32 is allowed; sums of 16-bit products are
// float32; transforms that lose digits (Winograd, FFT) are allowed only for TF32 and 16-bit types.
bool precise_enough(const ConvCall& call, std::span<const cudnnBackendNumericalNote_t> notes);

// Engine 0 takes anything and is rarely fast; 16-bit types and TF32 should use tensor cores.
bool fast_enough(const ConvCall& call, std::int64_t engine, std::span<const cudnnBackendNumericalNote_t> notes);

// Criteria of a search for plans.
struct Search {
  std::size_t most = 1;                            // number of plans wanted: the search stops when so many fast ones within
                                                   // `workspace` are built
  std::size_t built = 8;                           // at most so many plans are built
  std::size_t compiled = 0;                        // at most so many of them compiled at run time
  std::int64_t workspace = std::int64_t{1} << 30;  // bytes; plans that need more come last
  std::optional<std::int64_t> engine{};            // only this engine
  std::optional<std::int64_t> place{};             // only this proposal
  bool defective = false;                          // also accept engines that are known to compute such a call wrongly
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
