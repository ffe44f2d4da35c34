#pragma once
// Backend descriptors of the emulated cuDNN: the attributes of each kind with their types and counts, and the values set. From
// cudnn_graph.h and NVIDIA's documentation of cudnnBackendDescriptorType_t. Stricter than the library, which accepts some uses
// that its documentation forbids.

#include <cudnn.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace mpigrad::emulation::vendor {

// Thrown inside; the C functions return it as a status.
struct Refusal {
  cudnnStatus_t status;
  std::string text;
};
inline void demand(bool condition, cudnnStatus_t status, std::string text) {
  if (!condition) throw Refusal{status, std::move(text)};
}

struct Node;
using Snapshot = std::shared_ptr<const Node>;
struct ConvGraph;
struct Engine;

struct Value {
  cudnnBackendAttributeType_t type{};
  std::int64_t count = 0;
  std::vector<std::byte> bytes;
  std::vector<Snapshot> nodes;  // descriptors, copied when they were set
};

struct Rule {
  int name = 0;
  std::vector<cudnnBackendAttributeType_t> types;
  std::int64_t least = 1, most = 1;
  bool required = false;
  std::vector<cudnnBackendDescriptorType_t> of = {};  // the accepted kinds of descriptors
};

struct Node {
  explicit Node(cudnnBackendDescriptorType_t kind) : type(kind) {}
  cudnnBackendDescriptorType_t type;
  bool is_final = false;
  std::map<int, Value> values;
  // Results of finalising.
  std::shared_ptr<const ConvGraph> graph;        // operation graphs and descriptors made from them
  std::shared_ptr<const Engine> engine;          // engines, configurations and plans
  std::vector<std::shared_ptr<Node>> proposals;  // heuristics

  bool has(int name) const { return values.contains(name); }
  template <class T>
  std::vector<T> all(int name) const {
    const auto& value = values.at(name);
    std::vector<T> result(static_cast<std::size_t>(value.count));
    std::memcpy(result.data(), value.bytes.data(), value.bytes.size());
    return result;
  }
  template <class T>
  T one(int name) const {
    T result;
    std::memcpy(&result, values.at(name).bytes.data(), sizeof result);
    return result;
  }
  const Snapshot& node(int name, std::size_t i = 0) const { return values.at(name).nodes.at(i); }
};

// The attributes of a kind; throws for kinds that the emulation does not have.
const std::vector<Rule>& rules_of(cudnnBackendDescriptorType_t type);
std::size_t size_of(cudnnBackendAttributeType_t type);

// The checks and the work of cudnnBackendFinalize, by kind; required attributes are present. Throws Refusal.
void check_tensor(const Node&);
void check_convolution(const Node&);
void check_pointwise(const Node&);
void check_convolution_operation(const Node&);
void check_pointwise_operation(const Node&);
void check_variant_pack(const Node&);
std::shared_ptr<const ConvGraph> parse(const Node& graph);
std::vector<std::shared_ptr<Node>> propose(const Node& heuristics);
std::int64_t workspace_of(const Node& plan);
void check_plan(const Node&);
// Runs the plan in the order of the stream.
void execute(cudaStream_t stream, const Snapshot& plan, const Node& pack);

}  // namespace mpigrad::emulation::vendor
