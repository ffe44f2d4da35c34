#include "ops/backends/cudnn/cudnn_graph.h"

#include <array>
#include <utility>

#include "framework/base/error.h"
#include "framework/engine/op.h"

namespace mpigrad::cuda {

std::string cudnn_text(cudnnStatus_t status) {
  std::array<char, 2048> last{};
  cudnn().cudnnGetLastErrorString(last.data(), last.size());
  const std::string_view text(last.data());
  return fmt::format("{}{}{}", cudnn().cudnnGetErrorString(status), text.empty() ? "" : ": ", text);
}

void check_cudnn(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const auto op = detail::current_op();
  const auto text =
      fmt::format("[{}] cuDNN {}: {} failed: {}", op.empty() ? "cuda" : op, cudnn().cudnnGetVersion(), call, cudnn_text(status));
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) throw NotSupported(text);
  throw Error(text);
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  const auto status = cudnn().cudnnBackendCreateDescriptor(type, &descriptor_);
  if (status != CUDNN_STATUS_SUCCESS) check_cudnn(status, fmt::format("cudnnBackendCreateDescriptor({})", int{type}));
}
Descriptor::~Descriptor() {
  if (descriptor_) static_cast<void>(cudnn().cudnnBackendDestroyDescriptor(descriptor_));
}
Descriptor::Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                            const void* values) {
  // Executions use this, too: the text is only made when needed.
  const auto status = cudnn().cudnnBackendSetAttribute(descriptor_, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) check_cudnn(status, fmt::format("cudnnBackendSetAttribute({})", int{name}));
  return *this;
}
Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values) {
  return set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
}
Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& other) {
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.descriptor_);
}
Descriptor& Descriptor::finalize() {
  check_cudnn(try_finalize(), "cudnnBackendFinalize");
  return *this;
}
std::int64_t Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t room,
                             void* values) const {
  std::int64_t count = 0;
  check_cudnn(cudnn().cudnnBackendGetAttribute(descriptor_, name, type, room, &count, values),
              fmt::format("cudnnBackendGetAttribute({})", int{name}));
  return count;
}

namespace {

cudnnDataType_t native(DType type) {
  switch (type) {
    case DType::float32: return CUDNN_DATA_FLOAT;
    case DType::float64: return CUDNN_DATA_DOUBLE;
    case DType::bfloat16: return CUDNN_DATA_BFLOAT16;
    case DType::float16: return CUDNN_DATA_HALF;
    case DType::int64:
    case DType::int32:
    case DType::int16:
    case DType::uint8:
    case DType::boolean:
    case DType::uint16:
    case DType::complex64:
    case DType::complex128: break;
  }
  fail("[conv] cuDNN convolves floating-point numbers, not {}", name_of(type));
}

// Sums are double for double, else float32.
cudnnDataType_t compute_type(DType type) { return type == DType::float64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT; }

using Numbers = std::vector<std::int64_t>;

// The spatial dimensions of a call.
Numbers spatial(const ConvCall& call, const Extent3& e) { return call.flat ? Numbers{e[1], e[2]} : Numbers{e[0], e[1], e[2]}; }

// cuDNN names dimensions in the order N, C, D, H, W; the strides define their order in memory.
struct Geometry {
  Numbers dimensions, strides;
};
Geometry geometry(const ConvCall& call, std::int64_t batch, std::int64_t channels, const Extent3& extent) {
  Geometry g;
  g.dimensions = {batch, channels};
  for (const auto n : spatial(call, extent)) g.dimensions.push_back(n);
  g.strides.resize(g.dimensions.size());
  std::int64_t stride = 1;
  const auto place = [&](std::size_t dimension) {
    g.strides[dimension] = stride;
    stride *= g.dimensions[dimension];
  };
  if (call.order == Order::channels_last) place(1);
  for (std::size_t d = g.dimensions.size(); d-- > 2;) place(d);
  if (call.order == Order::channels_first) place(1);
  place(0);
  return g;
}

Descriptor tensor(const ConvCall& call, std::int64_t id, cudnnDataType_t type, const Geometry& g, bool is_virtual = false) {
  Descriptor t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, g.dimensions);
  t.set(CUDNN_ATTR_TENSOR_STRIDES, g.strides);
  t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, {&id, 1});
  t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {&call.alignment, 1});
  if (is_virtual) t.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  t.finalize();
  return t;
}

Descriptor convolution(const ConvCall& call) {
  const auto type = compute_type(call.type);
  const auto mode = CUDNN_CROSS_CORRELATION;
  const std::int64_t dimensions = call.flat ? 2 : 3;
  Descriptor c(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  c.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  c.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  c.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {&dimensions, 1});
  c.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, spatial(call, call.pad_low));
  c.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, spatial(call, call.pad_high));
  c.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, spatial(call, call.dilation));
  c.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, spatial(call, call.stride));
  c.finalize();
  return c;
}

// Scale factors have the type of the sums.
void set_scale(Descriptor& op, DType type, cudnnBackendAttributeName_t name, double value) {
  const auto single = static_cast<float>(value);
  if (type == DType::float64) op.set(name, CUDNN_TYPE_DOUBLE, 1, &value);
  else op.set(name, CUDNN_TYPE_FLOAT, 1, &single);
}

struct ConvolutionAttributes {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t convolution, image, weights, outputs, alpha, beta;
};
constexpr ConvolutionAttributes of_pass[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};

Descriptor pointwise(const ConvCall& call, cudnnPointwiseMode_t mode) {
  const auto type = compute_type(call.type);
  Descriptor p(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  p.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  p.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
  if (mode == CUDNN_POINTWISE_RELU_FWD) {
    const auto nan = CUDNN_PROPAGATE_NAN;               // a diverged network must be visible
    const double lower = 0, below = call.fused.factor;  // no upper bound: infinity would be clamped to a finite value
    p.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &nan);
    p.set(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE, 1, &lower);
    p.set(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_DOUBLE, 1, &below);
  }
  p.finalize();
  return p;
}

}  // namespace

Graph graph_of(const ConvCall& call, const Target& target) {
  const auto type = native(call.type), sums = compute_type(call.type);
  const auto image = geometry(call, call.batch, call.in_channels, call.in);
  const auto weights = geometry(call, call.out_channels, call.in_channels / call.groups, call.kernel);
  const auto outputs = geometry(call, call.batch, call.out_channels, call.out);
  const bool activation = !call.fused.is_none();
  const auto id = [](Operand operand) { return static_cast<std::int64_t>(operand); };

  Graph g;
  g.operands = {Operand::image, Operand::weights, Operand::outputs};
  std::vector<std::size_t> operations;
  const auto keep = [&](Descriptor d) {
    g.parts.push_back(std::move(d));
    return g.parts.size() - 1;
  };
  // Intermediate values between operations are virtual: they are not stored and not rounded.
  std::int64_t next_virtual = 100;
  const auto result = [&](bool last) {
    return keep(last ? tensor(call, id(Operand::outputs), type, outputs) : tensor(call, next_virtual++, sums, outputs, true));
  };

  const auto x = keep(tensor(call, id(Operand::image), type, image)), w = keep(tensor(call, id(Operand::weights), type, weights));
  auto y = result(!call.bias && !activation);
  const auto c = keep(convolution(call));
  const auto& names = of_pass[static_cast<std::size_t>(call.pass)];
  Descriptor op(names.type);
  op.set(names.convolution, g.parts[c])
      .set(names.image, g.parts[x])
      .set(names.weights, g.parts[w])
      .set(names.outputs, g.parts[y]);
  set_scale(op, call.type, names.alpha, 1);
  set_scale(op, call.type, names.beta, 0);
  op.finalize();
  operations.push_back(keep(std::move(op)));

  const auto follow = [&](cudnnPointwiseMode_t mode, bool last, const std::size_t* second) {
    const auto p = keep(pointwise(call, mode)), to = result(last);
    Descriptor next(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    next.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, g.parts[p]).set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, g.parts[y]);
    if (second) next.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, g.parts[*second]);
    next.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, g.parts[to]).finalize();
    operations.push_back(keep(std::move(next)));
    y = to;
  };
  if (call.bias) {
    const auto bias = keep(tensor(call, id(Operand::bias), type, geometry(call, 1, call.out_channels, {1, 1, 1})));
    g.operands.push_back(Operand::bias);
    follow(CUDNN_POINTWISE_ADD, !activation, &bias);
  }
  if (activation) follow(CUDNN_POINTWISE_RELU_FWD, true, nullptr);

  std::vector<cudnnBackendDescriptor_t> handles;
  for (const auto at : operations) handles.push_back(g.parts[at].handle());
  g.graph = std::make_unique<Descriptor>(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (target.handle) g.graph->set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  g.graph->set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(handles.size()),
               handles.data());
  g.graph->finalize();
  return g;
}

}  // namespace mpigrad::cuda
