// Checks of descriptors when they are finalised, and conversion to graphs.

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "tests/emulation/vendor/cudnn_graph.h"
#include "tests/emulation/vendor/options.h"

namespace mpigrad::emulation::vendor {
namespace {

Element element_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_FLOAT: return Element::float32;
    case CUDNN_DATA_DOUBLE: return Element::float64;
    case CUDNN_DATA_HALF: return Element::float16;
    case CUDNN_DATA_BFLOAT16: return Element::bfloat16;
    default: throw Refusal{CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, fmt::format("data type {} is not emulated", int{type})};
  }
}
// The type of sums: float for the 16-bit types.
void check_compute(Element type, const char* what) {
  demand(!is_half(type), CUDNN_STATUS_BAD_PARAM, fmt::format("{} computes in float or double", what));
}
void check_pair(Element compute, Element operand, const char* what) {
  demand((compute == Element::float64) == (operand == Element::float64), CUDNN_STATUS_BAD_PARAM,
         fmt::format("{}: doubles are computed with in double, the other types in float", what));
}

struct Names {
  int convolution, x, w, y, alpha, beta;
};
Names names_of(cudnnBackendDescriptorType_t type) {
  const auto& rules = rules_of(type);
  return {rules[0].name, rules[1].name, rules[2].name, rules[3].name, rules[4].name, rules[5].name};
}

// Scale factors have the type of the sums.
double scale_of(const Node& node, int name, Element compute) {
  const bool is_double = node.values.at(name).type == CUDNN_TYPE_DOUBLE;
  demand(is_double == (compute == Element::float64), CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
         fmt::format("attribute {} is a float where sums are floats and a double where they are doubles", name));
  return is_double ? node.one<double>(name) : static_cast<double>(node.one<float>(name));
}

std::array<std::int64_t, 3> spatial(const Node& convolution, int name, std::int64_t missing) {
  const auto values = convolution.all<std::int64_t>(name);
  std::array<std::int64_t, 3> result{missing, missing, missing};
  std::copy(values.begin(), values.end(), result.end() - static_cast<std::ptrdiff_t>(values.size()));
  return result;
}

}  // namespace

std::int64_t Tensor::elements() const {
  std::int64_t n = 1;
  for (const auto extent : dimensions) n *= extent;
  return n;
}
std::int64_t Tensor::reach() const {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < 5; ++d) last += (dimensions[d] - 1) * strides[d];
  return last + 1;
}
bool Tensor::packed(const std::array<std::size_t, 5>& order) const {
  std::int64_t stride = 1;
  for (const auto d : order) {
    if (dimensions[d] > 1 && strides[d] != stride) return false;
    stride *= dimensions[d];
  }
  return true;
}

Tensor tensor_of(const Node& node) {
  Tensor t;
  t.id = node.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  t.alignment = node.one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  t.type = element_of(node.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE));
  t.is_virtual = node.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && node.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  const auto dimensions = node.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
             strides = node.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  t.rank = static_cast<int>(dimensions.size());
  demand(t.rank == 4 || t.rank == 5, CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "tensors have 4 or 5 dimensions here");
  t.dimensions.fill(1), t.strides.fill(0);
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    const std::size_t to = d < 2 ? d : d + 5 - dimensions.size();
    t.dimensions[to] = dimensions[d], t.strides[to] = strides[d];
  }
  return t;
}

void check_tensor(const Node& node) {
  const auto dimensions = node.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
             strides = node.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  demand(dimensions.size() == strides.size(), CUDNN_STATUS_BAD_PARAM, "a tensor has as many strides as dimensions");
  const auto t = tensor_of(node);
  const auto size = static_cast<std::int64_t>(size_of(t.type));
  demand(t.alignment > 0 && t.alignment % size == 0 && (t.alignment & (t.alignment - 1)) == 0, CUDNN_STATUS_BAD_PARAM,
         "a tensor's alignment is a power of two and a multiple of the size of its elements");
  // Elements may not share memory: the stride of each dimension must exceed the span of the finer ones.
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    demand(dimensions[d] > 0 && strides[d] > 0, CUDNN_STATUS_BAD_PARAM, "dimensions and strides are positive");
    if (dimensions[d] > 1) order.push_back(d);
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return strides[a] < strides[b]; });
  std::int64_t span = 1;
  for (const auto d : order) {
    demand(strides[d] >= span, CUDNN_STATUS_BAD_PARAM, "elements of a tensor overlap");
    span = strides[d] * dimensions[d];
  }
  demand(t.id > 0, CUDNN_STATUS_BAD_PARAM, "a tensor's unique id is positive");
}

void check_convolution(const Node& node) {
  check_compute(element_of(node.one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE)), "a convolution");
  const auto mode = node.one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE);
  demand(mode == CUDNN_CONVOLUTION || mode == CUDNN_CROSS_CORRELATION, CUDNN_STATUS_BAD_PARAM, "no such convolution mode");
  const auto rank = node.one<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  demand(rank == 2 || rank == 3, CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "2 or 3 spatial dimensions are emulated");
  const auto check = [&](int name, std::int64_t least) {
    const auto values = node.all<std::int64_t>(name);
    demand(static_cast<std::int64_t>(values.size()) == rank, CUDNN_STATUS_BAD_PARAM,
           fmt::format("attribute {} has {} values for {} spatial dimensions", name, values.size(), rank));
    for (const auto v : values)
      demand(v >= least, CUDNN_STATUS_BAD_PARAM, fmt::format("attribute {} has the value {}, below {}", name, v, least));
  };
  check(CUDNN_ATTR_CONVOLUTION_DILATIONS, 1);
  check(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1);
  check(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0);
  check(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0);
}

void check_pointwise(const Node& node) {
  const auto mode = node.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  demand(mode == CUDNN_POINTWISE_ADD || mode == CUDNN_POINTWISE_RELU_FWD, CUDNN_STATUS_NOT_SUPPORTED,
         fmt::format("pointwise mode {} is not emulated", int{mode}));
  check_compute(element_of(node.one<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC)), "a pointwise operation");
  const bool is_relu = mode == CUDNN_POINTWISE_RELU_FWD;
  for (const int name : {int{CUDNN_ATTR_POINTWISE_NAN_PROPAGATION}, int{CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP},
                         int{CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP}, int{CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE}})
    demand(is_relu || !node.has(name), CUDNN_STATUS_BAD_PARAM, "a sum has no clips");
}

void check_convolution_operation(const Node& node) {
  const auto names = names_of(node.type);
  const auto& convolution = *node.node(names.convolution);
  const auto x = tensor_of(*node.node(names.x)), w = tensor_of(*node.node(names.w)), y = tensor_of(*node.node(names.y));
  const auto rank = convolution.one<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  const auto compute = element_of(convolution.one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE));
  for (const auto* t : {&x, &w, &y}) {
    demand(t->rank == rank + 2, CUDNN_STATUS_BAD_PARAM, "tensors have two dimensions more than the convolution");
    check_pair(compute, t->type, "a convolution");
  }
  const auto channels = w.dimensions[1];
  demand(x.dimensions[1] % channels == 0, CUDNN_STATUS_BAD_PARAM, "channels of x are not a multiple of those of w");
  demand(w.dimensions[0] % (x.dimensions[1] / channels) == 0, CUDNN_STATUS_BAD_PARAM, "groups do not divide the outputs");
  demand(y.dimensions[1] == w.dimensions[0], CUDNN_STATUS_BAD_PARAM, "channels of y are not those of w");
  demand(y.dimensions[0] == x.dimensions[0], CUDNN_STATUS_BAD_PARAM, "x and y have different batches");
  const auto pre = spatial(convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0),
             post = spatial(convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0),
             dilation = spatial(convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, 1),
             stride = spatial(convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1);
  for (std::size_t a = 0; a < 3; ++a) {
    const auto reach = dilation[a] * (w.dimensions[a + 2] - 1) + 1, in = x.dimensions[a + 2] + pre[a] + post[a];
    demand(in >= reach && y.dimensions[a + 2] == (in - reach) / stride[a] + 1, CUDNN_STATUS_BAD_PARAM,
           fmt::format("axis {}: {} inputs, padding {} and {}, a window over {}, stride {}: not {} outputs", a,
                       x.dimensions[a + 2], pre[a], post[a], reach, stride[a], y.dimensions[a + 2]));
  }
  static_cast<void>(scale_of(node, names.alpha, compute));
  static_cast<void>(scale_of(node, names.beta, compute));
}

void check_pointwise_operation(const Node& node) {
  const auto& pointwise = *node.node(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const bool adds = pointwise.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE) == CUDNN_POINTWISE_ADD;
  const bool has_b = node.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  demand(adds == has_b, CUDNN_STATUS_BAD_PARAM, "a sum has a second operand and an activation has none");
  const auto x = tensor_of(*node.node(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)),
             y = tensor_of(*node.node(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  demand(x.dimensions == y.dimensions && x.rank == y.rank, CUDNN_STATUS_BAD_PARAM, "x and y have different dimensions");
  const auto compute = element_of(pointwise.one<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC));
  check_pair(compute, x.type, "a pointwise operation");
  check_pair(compute, y.type, "a pointwise operation");
  for (const int name : {int{CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1}, int{CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2}})
    if (node.has(name)) static_cast<void>(scale_of(node, name, compute));
  if (!has_b) return;
  const auto b = tensor_of(*node.node(CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
  check_pair(compute, b.type, "a pointwise operation");
  demand(b.rank == x.rank, CUDNN_STATUS_BAD_PARAM, "x and b have different numbers of dimensions");
  for (std::size_t d = 0; d < 5; ++d)
    demand(b.dimensions[d] == 1 || b.dimensions[d] == x.dimensions[d], CUDNN_STATUS_BAD_PARAM, "b does not broadcast to x");
}

void check_variant_pack(const Node& node) {
  const auto ids = node.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = node.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  demand(ids.size() == pointers.size(), CUDNN_STATUS_BAD_PARAM, "as many pointers as ids");
  demand(std::set(ids.begin(), ids.end()).size() == ids.size(), CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "an id comes twice");
  for (const auto* pointer : pointers) demand(pointer != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a pointer is null");
}

const Tensor& ConvGraph::result() const {
  if (!then.empty()) return then.back().y;
  return direction == Direction::forward ? y : direction == Direction::data ? x : w;
}

std::shared_ptr<const ConvGraph> parse(const Node& node) {
  auto graph = std::make_shared<ConvGraph>();
  if (node.has(CUDNN_ATTR_OPERATIONGRAPH_HANDLE)) graph->handle = node.one<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
  const auto& operations = node.values.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).nodes;
  const auto pattern = [](bool condition, const char* text) {
    demand(condition, CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, text);
  };
  pattern(operations[0]->type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "a graph begins with a convolution here");
  const auto& first = *operations[0];
  graph->direction = first.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? Direction::forward
                     : first.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? Direction::data
                                                                                                  : Direction::filter;
  const auto names = names_of(first.type);
  const auto& convolution = *first.node(names.convolution);
  graph->x = tensor_of(*first.node(names.x)), graph->w = tensor_of(*first.node(names.w));
  graph->y = tensor_of(*first.node(names.y));
  graph->compute = element_of(convolution.one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE));
  graph->flips = convolution.one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CONVOLUTION;
  graph->pre = spatial(convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0);
  graph->post = spatial(convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0);
  graph->dilation = spatial(convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, 1);
  graph->stride = spatial(convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1);
  graph->alpha = scale_of(first, names.alpha, graph->compute), graph->beta = scale_of(first, names.beta, graph->compute);

  std::vector<Tensor> seen;
  const auto use = [&](const Tensor& t) {
    for (const auto& other : seen)
      demand(other.id != t.id, CUDNN_STATUS_BAD_PARAM, fmt::format("two tensors of a graph have the id {}", t.id));
    seen.push_back(t);
    if (!t.is_virtual) graph->operands.push_back(t);
  };
  use(graph->x), use(graph->w), use(graph->y);
  auto last = graph->result();
  for (std::size_t i = 1; i < operations.size(); ++i) {
    const auto& operation = *operations[i];
    pattern(operation.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "one convolution to a graph");
    pattern(graph->direction == Direction::forward, "pointwise operations follow forward convolutions here");
    const auto& how = *operation.node(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    demand(tensor_of(*operation.node(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)) == last, CUDNN_STATUS_BAD_PARAM,
           "an operation does not take what the one before it gives");
    pattern(last.is_virtual, "what flows between operations is virtual");
    Pointwise p;
    p.compute = element_of(how.one<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC));
    p.adds = operation.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    if (p.adds) {
      p.b = tensor_of(*operation.node(CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
      pattern(!p.b->is_virtual, "the second operand lies in memory");
      use(*p.b);
    }
    const auto clip = [&](int name, double otherwise) { return how.has(name) ? how.one<double>(name) : otherwise; };
    p.lower = clip(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0);
    // A given clip must be a number: infinity becomes the largest number.
    p.upper = how.has(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP)
                  ? std::min<double>(how.one<double>(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP), std::numeric_limits<float>::max())
                  : INFINITY;
    p.slope = clip(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0);
    const auto factor = [&](int name) { return operation.has(name) ? scale_of(operation, name, p.compute) : 1.0; };
    p.alpha1 = factor(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1), p.alpha2 = factor(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2);
    p.y = tensor_of(*operation.node(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    use(p.y);
    last = p.y;
    graph->then.push_back(std::move(p));
  }
  pattern(operations.size() == 1 || !Options("MPIGRAD_EMULATED_CUDNN").has("no-graphs"), "no graphs of several operations");
  demand(!last.is_virtual, CUDNN_STATUS_BAD_PARAM, "the result of a graph is virtual");
  for (const auto* t : {&graph->x, &graph->w})
    demand(!t->is_virtual, CUDNN_STATUS_BAD_PARAM, "x and w of a graph's only convolution lie in memory");
  demand(!graph->y.is_virtual || !graph->then.empty(), CUDNN_STATUS_BAD_PARAM, "y is virtual and nothing takes it");
  return graph;
}

}  // namespace mpigrad::emulation::vendor
