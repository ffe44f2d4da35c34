#pragma once
// Convolutions as operation graphs of cuDNN, by the backend descriptors of its C interface. Building graphs needs no GPU; only
// the choice of engines needs a handle or the description of a GPU (cuDNN 9.8 and newer).

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"
#include "ops/backends/cudnn/conv_call.h"
#include "ops/backends/cudnn/vendor_cudnn.h"

namespace mpigrad::cuda {

// "CUDNN_STATUS_BAD_PARAM: cuDNN's text on the last error of this thread"
std::string cudnn_text(cudnnStatus_t status);
// A status of the family CUDNN_STATUS_NOT_SUPPORTED: another form of the same call may be supported.
class NotSupported : public Error {
 public:
  using Error::Error;
};
// Throws "[op] cuDNN: CALL failed: TEXT"; as NotSupported if the status is of that family.
void check_cudnn(cudnnStatus_t status, std::string_view call);

// A backend descriptor: immutable once its attributes are set and it is finalized.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;

  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values);
  Descriptor& set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values);
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& other);
  Descriptor& finalize();
  // Engines refuse unsupported calls here.
  cudnnStatus_t try_finalize() { return cudnn().cudnnBackendFinalize(descriptor_); }

  // Number of available values; at most `room` are written.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t room, void* values) const;
  cudnnBackendDescriptor_t handle() const { return descriptor_; }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

// The tensors of a call, as numbered in plans.
enum class Operand : std::int64_t { image = 1, weights = 2, outputs = 3, bias = 4 };

// The target of a plan: a handle, or the description of a GPU that is not present.
struct Target {
  cudnnHandle_t handle = nullptr;
  const Descriptor* device = nullptr;
};

struct Graph {
  std::vector<Descriptor> parts;  // descriptors that the graph refers to
  std::unique_ptr<Descriptor> graph;
  std::vector<Operand> operands;  // operands that an execution takes
};

// The convolution of the call, followed by bias and activation as pointwise operations if it has them.
Graph graph_of(const ConvCall& call, const Target& target);

}  // namespace mpigrad::cuda
