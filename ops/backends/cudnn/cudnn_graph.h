#pragma once
// Convolutions as operation graphs of cuDNN, by the backend descriptors of its C interface. Building them needs no GPU but for
// the choice of engines, which needs a handle or the description of one (cuDNN 9.8 and newer).

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

// "CUDNN_STATUS_BAD_PARAM: what cuDNN says of the last error on this thread"
std::string cudnn_text(cudnnStatus_t status);
// A status of the family CUDNN_STATUS_NOT_SUPPORTED: another form of the same call may be.
class NotSupported : public Error {
 public:
  using Error::Error;
};
// Throws "[op] cuDNN: CALL failed: TEXT", as NotSupported where that is what cuDNN says.
void check_cudnn(cudnnStatus_t status, std::string_view call);

// A backend descriptor: attributes are set, then it is final.
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
  // Engines refuse here what they cannot do.
  cudnnStatus_t try_finalize() { return cudnn().cudnnBackendFinalize(descriptor_); }

  // Number of values there are; at most `room` are written.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t room, void* values) const;
  cudnnBackendDescriptor_t handle() const { return descriptor_; }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

// The tensors of a call, as plans know them.
enum class Operand : std::int64_t { image = 1, weights = 2, outputs = 3, bias = 4 };

// Where a plan is to run: a handle, or the description of a GPU that is not there.
struct Target {
  cudnnHandle_t handle = nullptr;
  const Descriptor* device = nullptr;
};

struct Graph {
  std::vector<Descriptor> parts;  // what the graph refers to
  std::unique_ptr<Descriptor> graph;
  std::vector<Operand> operands;  // that an execution is given
};

// The convolution of the call, with bias and activation as pointwise operations behind it where it has them.
Graph graph_of(const ConvCall& call, const Target& target);

}  // namespace mpigrad::cuda
