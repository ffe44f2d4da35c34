#include "models/export/graph.h"

#include <onnx.pb.h>

#include <limits>

#include "framework/base/error.h"
#include "framework/base/new_file.h"
#include "models/export/onnx.h"

namespace mpigrad {

bool can_export_onnx() { return true; }

namespace onnx {

constexpr int ir_version = 8, opset = 17;

struct Graph::Model {
  mpigrad_onnx::Model model{};
};

namespace {

int number_of(DType type) {
  switch (type) {
    case DType::float32: return 1;
    case DType::float64: return 11;
    case DType::int64: return 7;
    case DType::int32:
    case DType::int16:
    case DType::uint8:
    case DType::boolean:
    case DType::uint16:
    case DType::bfloat16:
    case DType::float16:
    case DType::complex64:
    case DType::complex128: break;
  }
  fail("[onnx] tensors of type {} cannot be exported", name_of(type));
}

void describe(mpigrad_onnx::ValueInfo& info, const std::string& name, const Shape& shape, DType type, bool any_batch) {
  info.set_name(name);
  auto& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(number_of(type));
  auto& extents = *tensor.mutable_shape();
  for (const auto extent : shape) {
    auto& dim = *extents.add_dim();
    if (any_batch && extents.dim_size() == 1) dim.set_dim_param("N");
    else dim.set_dim_value(extent);
  }
}

}  // namespace

Graph::Graph() : model_(std::make_unique<Model>()) {
  auto& model = model_->model;
  model.set_ir_version(ir_version);
  model.set_producer_name("mpigrad");
  model.add_opset_import()->set_version(opset);
  model.mutable_graph()->set_name("network");
}
Graph::~Graph() = default;

void Graph::input(const std::string& name, const Shape& shape, DType type, bool any_batch) {
  describe(*model_->model.mutable_graph()->add_input(), name, shape, type, any_batch);
}
void Graph::output(const std::string& name, const Shape& shape, DType type, bool any_batch) {
  describe(*model_->model.mutable_graph()->add_output(), name, shape, type, any_batch);
}

void Graph::constant(const std::string& name, const Tensor& value) {
  auto& data = *model_->model.mutable_graph()->add_initializer();
  data.set_name(name);
  for (const auto extent : value.shape()) data.add_dims(extent);
  data.set_data_type(number_of(value.dtype()));
  data.set_raw_data(value.raw(), static_cast<std::size_t>(value.bytes()));
}

void Graph::constant(const std::string& name, const Ints& values) {
  auto& data = *model_->model.mutable_graph()->add_initializer();
  data.set_name(name);
  data.add_dims(static_cast<std::int64_t>(values.size()));
  data.set_data_type(number_of(DType::int64));
  data.set_raw_data(values.data(), values.size() * sizeof(std::int64_t));
}

void Graph::node(const std::string& op, const std::vector<std::string>& inputs, const std::string& output,
                 const std::vector<Attribute>& attributes) {
  auto& node = *model_->model.mutable_graph()->add_node();
  node.set_op_type(op);
  node.set_name(output);
  for (const auto& input : inputs) node.add_input(input);
  node.add_output(output);
  for (const auto& attribute : attributes) {
    auto& made = *node.add_attribute();
    made.set_name(attribute.name);
    if (const auto* i = std::get_if<std::int64_t>(&attribute.value)) made.set_i(*i), made.set_type(2);
    else if (const auto* f = std::get_if<double>(&attribute.value)) made.set_f(static_cast<float>(*f)), made.set_type(1);
    else {
      for (const auto each : std::get<Ints>(attribute.value)) made.add_ints(each);
      made.set_type(7);
    }
  }
}

void Graph::write(const std::filesystem::path& path, bool overwrite) const {
  require(overwrite || !std::filesystem::exists(path), "[onnx] {} exists already", path.string());
  const auto& model = model_->model;
  require(model.ByteSizeLong() < static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()),
          "[onnx] {} would have {} bytes, but such files have less than 2 GiB", path.string(), model.ByteSizeLong());
  const auto text = model.SerializeAsString();
  write_new_file(path, text, "onnx");
}

}  // namespace onnx
}  // namespace mpigrad
