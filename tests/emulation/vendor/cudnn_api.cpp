// The functions of libcudnn that the library uses (ops/backends/cudnn/vendor_cudnn.h), on host memory.

#include <algorithm>
#include <mutex>
#include <set>

#include "tests/emulation/vendor/cudnn_graph.h"
#include "tests/emulation/vendor/options.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace mpigrad::emulation::vendor {
namespace {

thread_local std::string last_error;

struct Handle {
  std::shared_ptr<Node> node;
};

// Checks that a handle is valid; an invalid one is a mistake of the caller.
template <class T>
class Known {
 public:
  void add(T* item) {
    const std::lock_guard lock(mutex_);
    items_.insert(item);
  }
  bool remove(T* item) {
    const std::lock_guard lock(mutex_);
    return items_.erase(item) > 0;
  }
  bool has(T* item) const {
    const std::lock_guard lock(mutex_);
    return items_.contains(item);
  }

 private:
  mutable std::mutex mutex_;
  std::set<T*> items_;
};
Known<Handle>& descriptors() {
  static auto* all = new Known<Handle>;
  return *all;
}
Known<cudnnContext>& contexts() {
  static auto* all = new Known<cudnnContext>;
  return *all;
}

Handle& known(cudnnBackendDescriptor_t descriptor) {
  auto* handle = static_cast<Handle*>(descriptor);
  demand(handle && descriptors().has(handle), CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "this descriptor does not exist");
  return *handle;
}

template <class F>
cudnnStatus_t guarded(F&& call) {
  try {
    call();
    return CUDNN_STATUS_SUCCESS;
  } catch (const Refusal& refusal) {
    last_error = refusal.text;
    return refusal.status;
  }
}

const Rule& rule_of(const Node& node, cudnnBackendAttributeName_t name) {
  for (const auto& rule : rules_of(node.type))
    if (rule.name == int{name}) return rule;
  throw Refusal{CUDNN_STATUS_BAD_PARAM, fmt::format("descriptors of type {} have no attribute {}", int{node.type}, int{name})};
}

void set(Node& node, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* data) {
  demand(!node.is_final, CUDNN_STATUS_BAD_PARAM, "the descriptor is final");
  const auto& rule = rule_of(node, name);
  demand(std::find(rule.types.begin(), rule.types.end(), type) != rule.types.end(), CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
         fmt::format("attribute {} is not of type {}", int{name}, int{type}));
  demand(count >= rule.least && count <= rule.most, CUDNN_STATUS_BAD_PARAM,
         fmt::format("attribute {} has {} to {} elements, not {}", int{name}, rule.least, rule.most, count));
  demand(data != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no elements");
  Value value{type, count, std::vector<std::byte>(size_of(type) * static_cast<std::size_t>(count)), {}};
  std::memcpy(value.bytes.data(), data, value.bytes.size());
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (std::int64_t i = 0; i < count; ++i) {
      const auto& other = known(static_cast<const cudnnBackendDescriptor_t*>(data)[i]).node;
      demand(other->is_final, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, fmt::format("attribute {} is not final", int{name}));
      demand(std::find(rule.of.begin(), rule.of.end(), other->type) != rule.of.end(), CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
             fmt::format("attribute {} is no descriptor of type {}", int{name}, int{other->type}));
      value.nodes.push_back(other);
    }
  if (type == CUDNN_TYPE_HANDLE)
    demand(contexts().has(*static_cast<const cudnnHandle_t*>(data)), CUDNN_STATUS_BAD_PARAM, "this handle does not exist");
  node.values[name] = std::move(value);
}

void finalise(Node& node) {
  demand(!node.is_final, CUDNN_STATUS_BAD_PARAM, "the descriptor is final already");
  for (const auto& rule : rules_of(node.type))
    demand(!rule.required || node.has(rule.name), CUDNN_STATUS_BAD_PARAM, fmt::format("attribute {} is not set", rule.name));
  switch (node.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: check_tensor(node); break;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: check_convolution(node); break;
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR: check_pointwise(node); break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: check_convolution_operation(node); break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: check_pointwise_operation(node); break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: node.graph = parse(node); break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: node.proposals = propose(node); break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: check_plan(node); break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: check_variant_pack(node); break;
    default: throw Refusal{CUDNN_STATUS_NOT_SUPPORTED, "configurations come from heuristics here"};
  }
  node.is_final = true;
}

// Copies at most `room` elements; returns the number of available elements.
template <class T>
std::int64_t give(const std::vector<T>& values, std::int64_t room, void* to) {
  if (to) std::copy_n(values.begin(), std::min<std::size_t>(values.size(), static_cast<std::size_t>(room)), static_cast<T*>(to));
  return static_cast<std::int64_t>(values.size());
}

std::int64_t get(const Node& node, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t room,
                 void* to) {
  demand(node.is_final, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the descriptor is not final");
  const auto is = [&](cudnnBackendDescriptorType_t kind, cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t of) {
    if (node.type != kind || name != attribute) return false;
    demand(type == of, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
           fmt::format("attribute {} is not of type {}", int{name}, int{type}));
    return true;
  };
  // Copies into existing descriptors.
  const auto fill = [&](std::int64_t i, cudnnBackendDescriptorType_t kind, const std::shared_ptr<Node>& from) {
    auto& target = known(static_cast<cudnnBackendDescriptor_t*>(to)[i]);
    demand(target.node->type == kind, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a descriptor of another type is to be filled");
    demand(!target.node->is_final, CUDNN_STATUS_BAD_PARAM, "a descriptor that is final is to be filled");
    target.node = from;
  };
  if (is(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR)) {
    const auto count = static_cast<std::int64_t>(node.proposals.size());
    if (!to) return count;
    for (std::int64_t i = 0; i < std::min(room, count); ++i)
      fill(i, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, node.proposals[static_cast<std::size_t>(i)]);
    return std::min(room, count);
  }
  if (is(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR)) {
    demand(room == 1 && to, CUDNN_STATUS_BAD_PARAM, "a configuration has one engine");
    auto engine = std::make_shared<Node>(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    engine->is_final = true, engine->engine = node.engine, engine->graph = node.graph;
    fill(0, CUDNN_BACKEND_ENGINE_DESCRIPTOR, engine);
    return 1;
  }
  if (is(CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64))
    return give<std::int64_t>({node.engine->number}, room, to);
  if (is(CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE))
    return give(node.engine->notes, room, to);
  if (is(CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE)) {
    std::vector<cudnnBackendBehaviorNote_t> notes;
    if (node.engine->compiled) notes.push_back(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
    return give(notes, room, to);
  }
  if (is(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64))
    return give<std::int64_t>({workspace_of(node)}, room, to);
  throw Refusal{CUDNN_STATUS_NOT_SUPPORTED, fmt::format("attribute {} of type {} is not read here", int{name}, int{node.type})};
}

}  // namespace
}  // namespace mpigrad::emulation::vendor

using namespace mpigrad::emulation::vendor;

extern "C" {

size_t cudnnGetVersion() {
  const Options asked("MPIGRAD_EMULATED_CUDNN");
  for (const size_t pretended : {90800U, 91002U, 91400U, 91500U, 91600U})
    if (asked.has(fmt::format("version-{}", pretended))) return pretended;
  return CUDNN_VERSION;
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    default: break;
  }
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_BAD_PARAM) return "CUDNN_STATUS_BAD_PARAM_...";
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) return "CUDNN_STATUS_NOT_SUPPORTED_...";
  return "CUDNN_STATUS_...";
}

void cudnnGetLastErrorString(char* message, size_t size) {
  if (!message || size == 0) return;
  const auto count = std::min(size - 1, last_error.size());
  std::copy_n(last_error.begin(), count, message);
  message[count] = '\0';
  last_error.clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return guarded([&] {
    demand(handle != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for a handle");
    contexts().add(*handle = new cudnnContext);
  });
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return guarded([&] {
    demand(contexts().has(handle), CUDNN_STATUS_BAD_PARAM, "this handle does not exist");
    handle->stream = stream;
  });
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  return guarded([&] {
    demand(contexts().has(handle) && stream, CUDNN_STATUS_BAD_PARAM, "this handle does not exist");
    *stream = handle->stream;
  });
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  return guarded([&] {
    demand(descriptor != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for a descriptor");
    static_cast<void>(rules_of(type));
    auto* handle = new Handle{std::make_shared<Node>(type)};
    descriptors().add(handle);
    *descriptor = handle;
  });
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return guarded([&] {
    auto* handle = static_cast<Handle*>(descriptor);
    demand(descriptors().remove(handle), CUDNN_STATUS_BAD_PARAM, "this descriptor does not exist");
    delete handle;
  });
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* data) {
  return guarded([&] { set(*known(descriptor).node, name, type, count, data); });
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t* count, void* data) {
  return guarded([&] {
    const auto found = get(*known(descriptor).node, name, type, room, data);
    if (count) *count = found;
  });
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return guarded([&] { finalise(*known(descriptor).node); });
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  return guarded([&] {
    demand(contexts().has(handle), CUDNN_STATUS_BAD_PARAM, "this handle does not exist");
    const auto& p = known(plan).node;
    const auto& v = known(pack).node;
    demand(p->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && v->type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
           CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a plan and a variant pack are executed");
    demand(p->is_final && v->is_final, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the plan or the pack is not final");
    demand(p->node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->graph->handle == handle, CUDNN_STATUS_BAD_PARAM,
           "the plan was made for another handle");
    execute(handle->stream, p, *v);
  });
}

}  // extern "C"
