// The graph in builds without protobuf.

#include "framework/base/error.h"
#include "models/export/graph.h"
#include "models/export/onnx.h"

namespace mpigrad {

bool can_export_onnx() { return false; }

namespace onnx {

struct Graph::Model {};
Graph::Graph() { fail("[onnx] this build has no protobuf: install libprotobuf-dev and protobuf-compiler"); }
Graph::~Graph() = default;
void Graph::input(const std::string&, const Shape&, DType, bool) {}
void Graph::output(const std::string&, const Shape&, DType, bool) {}
void Graph::constant(const std::string&, const Tensor&) {}
void Graph::constant(const std::string&, const Ints&) {}
void Graph::node(const std::string&, const std::vector<std::string>&, const std::string&, const std::vector<Attribute>&) {}
void Graph::write(const std::filesystem::path&, bool) const {}

}  // namespace onnx
}  // namespace mpigrad
