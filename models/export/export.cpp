#include "models/export/onnx.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "models/export/values.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/activation_ops.h"
#include "ops/linear/matmul.h"
#include "ops/norm/channel_norm.h"
#include "ops/pool/pool_ops.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/views/resample.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

using onnx::Attribute;
using onnx::axis_in_first;
using onnx::Ints;
using onnx::ints;
using onnx::to_first;
using onnx::volume_rank;

// Observes the ops of a forward pass and adds their nodes to the graph.
class Exporter final : public onnx::Values, public detail::OpObserver {
 public:
  using Values::Values;

  void ran(const detail::OpFunctions& f, const void* op, Inputs in, Outputs out) override {
    const bool matters = std::any_of(in.begin(), in.end(), [&](const Tensor& x) { return x && values_.count(x.id()) != 0; });
    if (busy_ || !matters) return;
    const Busy busy(busy_);
    at_ = {&f, f.traits.name, op, in, out};
    convert();
  }

 private:
  // In scope while the exporter itself computes: these ops are not part of the network.
  struct Busy {
    explicit Busy(bool& busy) : flag(busy) { flag = true; }
    ~Busy() { flag = false; }
    bool& flag;
  };

  std::string activated(const std::string& x, scalar::Fused fused) {
    if (fused.is_none()) return x;
    if (fused.is_relu()) return node("Relu", {x});
    return node("LeakyRelu", {x}, {{"alpha", fused.factor}});
  }
  // Activations x f(x) without an operator in opset 17.
  std::string factor_of_activation(const std::string& x, DType type) {
    const auto times = [&](const std::string& a, double b) { return node("Mul", {a, number(b, type)}); };
    const auto plus = [&](const std::string& a, double b) { return node("Add", {a, number(b, type)}); };
    if (at_.name == "silu") return node("Sigmoid", {x});
    if (at_.name == "gelu") return times(plus(node("Erf", {times(x, M_SQRT1_2)}), 1), 0.5);
    using scalar::GeluTanh;
    if (at_.name == "gelu_tanh")
      return node("Sigmoid", {node("Mul", {x, plus(times(node("Mul", {x, x}), GeluTanh::k * GeluTanh::cube), GeluTanh::k)})});
    fail("[onnx] the activation {} has no operator here", at_.name);
  }
  Ints pads(const ops::Window& w) const {
    Ints result = ints(w.low);
    for (std::size_t d = 0; d < 3; ++d)
      result.push_back(
          std::max<std::int64_t>(0, (w.out[d] - 1) * w.stride[d] + (w.kernel[d] - 1) * w.dilation[d] + 1 - w.in[d] - w.low[d]));
    return result;
  }
  void pool(const std::string& op, const ops::Window& w, scalar::Fused fused) {
    const bool average = op == "AveragePool";
    const bool dilated = w.dilation != Extent3{1, 1, 1};
    require(!average || !dilated, "[onnx] average pooling with a dilation has no operator in opset 17");
    std::vector<Attribute> attributes{{"kernel_shape", ints(w.kernel)}, {"strides", ints(w.stride)}, {"pads", pads(w)}};
    if (average) attributes.push_back({"count_include_pad", std::int64_t{1}});
    else if (dilated) attributes.push_back({"dilations", ints(w.dilation)});
    set_first(node(op, {activated(first(in(0)), fused)}, attributes));
  }

  void conv(const ConvAttributes& a, scalar::Fused fused) {
    const auto& w = in(1);
    require(known(w), "[onnx] weights of a convolution do not depend on the input");
    auto pads = ints(a.padding.low);
    for (const auto p : ints(a.padding.high)) pads.push_back(p);
    std::vector<std::string> inputs{first(in(0)), weight(w)};
    require(!has(2) || known(in(2)), "[onnx] weights of a convolution do not depend on the input");
    if (has(2)) inputs.push_back(constant(in(2)));
    const auto y = node("Conv", inputs,
                        {{"kernel_shape", Ints{w.dim(1), w.dim(2), w.dim(3)}},
                         {"strides", ints(a.stride)},
                         {"dilations", ints(a.dilation)},
                         {"pads", pads},
                         {"group", a.groups}});
    set_first(activated(y, fused));
  }
  std::string weight(const Tensor& w) {
    const auto found = names_.find(w.id());
    auto name = found == names_.end() ? fresh("constant") : found->second;
    return add_constant(std::move(name), permute(w, to_first));
  }
  // ONNX's weights are [in, out/groups, ...], where `in` are the channels of the input of the transposed convolution.
  void conv_transpose(const ops::ConvData& op) {
    const auto& w = in(1);
    require(known(w), "[onnx] weights of a convolution do not depend on the input");
    Ints low = ints(op.a.padding.low), high = ints(op.a.padding.high), more(3);
    const auto stride = ints(op.a.stride), dilation = ints(op.a.dilation);
    for (std::size_t d = 0; d < 3; ++d) {
      const auto k = w.dim(static_cast<int>(d) + 1);
      const auto whole = stride[d] * (in(0).dim(static_cast<int>(d) + 1) - 1) + dilation[d] * (k - 1) + 1;
      more[d] = op.extent[d] - (whole - low[d] - high[d]);
      if (more[d] < 0) high[d] -= more[d], more[d] = 0;
    }
    Ints pads = low;
    pads.insert(pads.end(), high.begin(), high.end());
    set_first(node("ConvTranspose", {first(in(0)), weight(w)},
                   {{"kernel_shape", Ints{w.dim(1), w.dim(2), w.dim(3)}},
                    {"strides", stride},
                    {"dilations", dilation},
                    {"pads", pads},
                    {"output_padding", more},
                    {"group", op.a.groups}}));
  }

  // One value per channel, or per sample and channel, to combine with a volume in ONNX's order or with rows of channels in the
  // library's order.
  std::string per_channel(const Tensor& v, bool volume) {
    if (!volume) return last(v);
    if (v.rank() == 1) return first_of_channels(v);
    return node("Unsqueeze", {last(v), constant(Ints{2, 3, 4})});
  }
  std::string first_of_channels(const Tensor& v) {
    if (known(v)) return constant(reshape(v, {v.dim(0), 1, 1, 1}));
    return node("Unsqueeze", {last(v), constant(Ints{1, 2, 3})});
  }
  // f((x - m) a + b)
  void channel_affine(scalar::Fused fused) {
    const bool volume = in(0).rank() == volume_rank;
    require(volume || in(1).rank() == 1, "[onnx] norms of each sample are of volumes");
    auto y = volume ? first(in(0)) : last(in(0));
    if (known(in(1)) && known(in(2)) && (!has(3) || known(in(3)))) {
      // Computed in float64 and rounded once.
      const auto m = cast(in(1), DType::float64), a = cast(in(2), DType::float64);
      const auto shift = has(3) ? cast(in(3), DType::float64) - m * a : -(m * a);
      y = node("Mul", {y, per_channel(in(2), volume)});
      y = node("Add", {y, per_channel(cast(shift, in(0).dtype()), volume)});
    } else {
      y = node("Sub", {y, per_channel(in(1), volume)});
      y = node("Mul", {y, per_channel(in(2), volume)});
      if (has(3)) y = node("Add", {y, per_channel(in(3), volume)});
    }
    y = activated(y, fused);
    volume ? set_first(y) : set_last(y);
  }
  void channel_moments(bool per_sample) {
    const auto& x = in(0);
    require(x.rank() == volume_rank, "[onnx] norms of the batch are of volumes");
    require(per_sample || !any_batch_, "[onnx] statistics of a batch cannot be exported for any number of samples");
    const Ints axes = per_sample ? Ints{2, 3, 4} : Ints{0, 2, 3, 4};
    const auto kept = node("ReduceMean", {first(x)}, {{"axes", axes}, {"keepdims", std::int64_t{1}}});
    const auto apart = node("Sub", {first(x), kept});
    values_[at_.out[0].id()].last = node("Squeeze", {kept, constant(axes)});
    values_[at_.out[1].id()].last =
        node("ReduceSum", {node("Mul", {apart, apart}), constant(axes)}, {{"keepdims", std::int64_t{0}}});
  }

  void linear(scalar::Fused fused) {
    require(known(in(1)) && (!has(2) || known(in(2))), "[onnx] weights of a linear layer do not depend on the input");
    std::vector<std::string> inputs{last(in(0)), constant(in(1))};
    if (has(2)) inputs.push_back(constant(in(2)));
    set_last(activated(node("Gemm", inputs, {{"transB", std::int64_t{1}}}), fused));
  }
  void matmul(const MatmulAttributes& a) {
    const auto turned = [&](const Tensor& x, bool turn) {
      if (!turn) return last(x);
      Ints order(static_cast<std::size_t>(x.rank()));
      std::iota(order.begin(), order.end(), 0);
      std::swap(order[order.size() - 1], order[order.size() - 2]);
      return node("Transpose", {last(x)}, {{"perm", order}});
    };
    set_last(node("MatMul", {turned(in(0), a.transpose_a), turned(in(1), a.transpose_b)}));
  }

  // [n, in] -> [m, in]: each element is a sum of a few elements.
  void map_lines(const ops::MapLines& op) {
    const auto& matrix = op.matrix();
    const auto begin = matrix.first.to_vector(), index = matrix.index.to_vector(), weight = matrix.weight.to_vector();
    const bool volume = in(0).rank() == volume_rank;
    const auto axis = volume ? axis_in_first(op.axis) : op.axis;
    const auto x = volume ? first(in(0)) : last(in(0));
    std::size_t most = 0;
    for (std::int64_t o = 0; o < matrix.rows; ++o)
      most =
          std::max(most, static_cast<std::size_t>(begin[static_cast<std::size_t>(o) + 1] - begin[static_cast<std::size_t>(o)]));
    std::vector<std::int64_t> ones(static_cast<std::size_t>(in(0).rank()), 1);
    ones[static_cast<std::size_t>(axis)] = matrix.rows;
    const Shape beside(ones);
    std::string sum;
    for (std::size_t k = 0; k < most; ++k) {
      Ints from;
      std::vector<double> factor;
      for (std::int64_t o = 0; o < matrix.rows; ++o) {
        const auto at = static_cast<std::size_t>(begin[static_cast<std::size_t>(o)]) + k;
        const bool there = at < static_cast<std::size_t>(begin[static_cast<std::size_t>(o) + 1]);
        from.push_back(there ? static_cast<std::int64_t>(index[at]) : 0);
        factor.push_back(there ? weight[at] : 0);
      }
      auto term = node("Gather", {x, constant(from)}, {{"axis", axis}});
      if (std::any_of(factor.begin(), factor.end(), [](double f) { return f != 1; }))
        term = node("Mul", {term, constant(from_vector(beside, factor, in(0).dtype()))});
      sum = sum.empty() ? term : node("Add", {sum, term});
    }
    volume ? set_first(sum) : set_last(sum);
  }

  void concatenate(int axis) {
    const bool volume = at_.out[0].rank() == volume_rank;
    std::vector<std::string> parts;
    for (const auto& x : at_.in) parts.push_back(volume ? first(x) : last(x));
    const auto name = node("Concat", parts, {{"axis", volume ? axis_in_first(axis) : std::int64_t{axis}}});
    volume ? set_first(name) : set_last(name);
  }
  void slice(const ops::Slice& op) {
    Ints axes(static_cast<std::size_t>(op.begin.rank()));
    std::iota(axes.begin(), axes.end(), 0);
    const auto list = [&](const Shape& s) { return constant(Ints(s.begin(), s.end())); };
    require(!any_batch_ || (op.begin[0] == 0 && op.step[0] == 1 && op.end[0] == in(0).dim(0)),
            "[onnx] a slice of the samples cannot be exported for any number of samples");
    auto end = op.end;
    if (any_batch_) end[0] = std::numeric_limits<std::int32_t>::max();
    set_last(node("Slice", {last(in(0)), list(op.begin), list(end), constant(axes), list(op.step)}));
  }
  void pad(const ops::SlicePut& op) {
    require(std::all_of(op.step.begin(), op.step.end(), [](auto s) { return s == 1; }),
            "[onnx] padding with zeros between elements has no operator in opset 17");
    Ints pads(op.begin.begin(), op.begin.end());
    for (int d = 0; d < op.shape.rank(); ++d) pads.push_back(op.shape[d] - op.begin[d] - in(0).dim(d));
    set_last(node("Pad", {last(in(0)), constant(pads), number(op.value, in(0).dtype())}));
  }
  // The library's reductions keep the dimensions.
  void reduce(const std::string& op, const std::vector<int>& axes) {
    require(!any_batch_ || std::find(axes.begin(), axes.end(), 0) == axes.end(),
            "[onnx] a reduction over the samples cannot be exported for any number of samples");
    const bool volume = has_first(in(0));
    Ints list;
    for (const int axis : axes) list.push_back(volume ? axis_in_first(axis) : axis);
    const auto x = volume ? first(in(0)) : last(in(0));
    // Axes are an attribute or an input, as in opset 17.
    std::vector<std::string> inputs{x};
    std::vector<Attribute> attributes;
    if (op == "ReduceSum") inputs.push_back(constant(list));
    else attributes.push_back({"axes", list});
    const auto y = node(op, inputs, attributes);
    volume ? set_first(y) : set_last(y);
  }

  void convert() {
    static const std::map<std::string_view, std::string> plain{
        {"add", "Add"},
        {"subtract", "Sub"},
        {"multiply", "Mul"},
        {"divide", "Div"},
        {"pow", "Pow"},
        {"maximum", "Max"},
        {"minimum", "Min"},
        {"exp", "Exp"},
        {"log", "Log"},
        {"sqrt", "Sqrt"},
        {"abs", "Abs"},
        {"sign", "Sign"},
        {"floor", "Floor"},
        {"ceil", "Ceil"},
        {"sin", "Sin"},
        {"cos", "Cos"},
        {"erf", "Erf"},
        {"reciprocal", "Reciprocal"},
#define MPIGRAD_MAKE(F, name, onnx) {#name, onnx},
        MPIGRAD_COMPOSED_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE) MPIGRAD_PLAIN_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
    };
    const auto& name = at_.name;
    const auto type = at_.in.empty() || !at_.in[0] ? DType::float32 : at_.in[0].dtype();
    if (is<ops::Unary<ops::DivideBy>>()) return elementwise("Div", {number(as<ops::Unary<ops::DivideBy>>().f.c, type)});
    if (is<ops::Unary<ops::DivideNumber>>()) {
      const bool volume = in_first();
      const auto y = node("Div", {number(as<ops::Unary<ops::DivideNumber>>().f.c, type), volume ? first(in(0)) : last(in(0))});
      return volume ? set_first(y) : set_last(y);
    }
    if (is<ops::Unary<ops::PowScalar>>()) return elementwise("Pow", {number(as<ops::Unary<ops::PowScalar>>().f.p, type)});
    if (const auto found = plain.find(name); found != plain.end()) {
      if (!found->second.empty()) return elementwise(found->second);
      const bool volume = in_first();
      const auto x = volume ? first(in(0)) : last(in(0)), y = node("Mul", {x, factor_of_activation(x, type)});
      return volume ? set_first(y) : set_last(y);
    }
    if (name == "elu") return elementwise("Elu", {}, {{"alpha", as<ops::Unary<ops::Elu>>().f.alpha}});
    if (name == "conv") return conv(as<ops::Conv>().a, {});
    if (name == "conv_bias_activation") return conv(as<ops::ConvBiasActivation>().a, as<ops::ConvBiasActivation>().fused);
    if (name == "conv_data") return conv_transpose(as<ops::ConvData>());
    if (name == "avg_pool") return pool("AveragePool", as<ops::AvgPool>().window, {});
    if (name == "leaky_avg_pool") return pool("AveragePool", as<ops::LeakyAvgPool>().window, as<ops::LeakyAvgPool>().fused);
    if (name == "max_pool") return pool("MaxPool", as<ops::MaxPool>().window, {});
    if (name == "channel_affine") return channel_affine(as<ops::ChannelAffine>().fused);
    if (name == "channel_moments") return channel_moments(as<ops::ChannelMoments>().per_sample);
    if (name == "linear") return linear(as<ops::Linear>().fused);
    if (name == "matmul") return matmul(as<ops::Matmul>().a);
    if (name == "map_lines") return map_lines(as<ops::MapLines>());
    if (name == "concatenate") return concatenate(as<ops::Concatenate>().axis);
    if (name == "slice") return slice(as<ops::Slice>());
    if (name == "pad") return pad(as<ops::SlicePut>());
    if (name == "sum") return reduce("ReduceSum", as<ops::Sum>().axes);
    if (name == "max/min") return reduce(as<ops::Extremum>().largest ? "ReduceMax" : "ReduceMin", as<ops::Extremum>().axes);
    if (name == "softmax") return set_last(node("Softmax", {last(in(0))}, {{"axis", std::int64_t{-1}}}));
    if (name == "log_softmax") return set_last(node("LogSoftmax", {last(in(0))}, {{"axis", std::int64_t{-1}}}));
    if (name == "leaky_relu") {
      const auto fused = as<ops::Unary<ops::LeakyRelu>>().f.fused;
      return fused.is_relu() ? elementwise("Relu") : elementwise("LeakyRelu", {}, {{"alpha", fused.factor}});
    }
    if (name == "affine") {
      const auto& f = as<ops::Unary<ops::Affine>>().f;
      const bool volume = in_first();
      auto y = volume ? first(in(0)) : last(in(0));
      if (f.a != 1) y = node("Mul", {y, number(f.a, type)});
      if (f.b != 0) y = node("Add", {y, number(f.b, type)});
      if (f.a == 1 && f.b == 0) y = node("Identity", {y});
      return volume ? set_first(y) : set_last(y);
    }
    if (name == "square") return elementwise("Pow", {number(2, type)});
    if (name == "clamp") {
      const auto& f = as<ops::Unary<ops::Clamp>>().f;
      return elementwise("Clip", {number(f.low, type), number(f.high, type)});
    }
    if (name == "bias_activation") {
      const bool volume = in(0).rank() == volume_rank;
      auto y = volume ? first(in(0)) : last(in(0));
      if (has(1)) y = node("Add", {y, per_channel(in(1), volume)});
      y = activated(y, as<ops::BiasActivation>().fused);
      return volume ? set_first(y) : set_last(y);
    }
    if (name == "reshape") return set_last(node("Reshape", {last(in(0)), constant(extents(at_.out[0].shape(), in(0).shape()))}));
    if (name == "permute") {
      const auto& order = as<ops::Permute>().order;
      return set_last(node("Transpose", {last(in(0))}, {{"perm", Ints(order.begin(), order.end())}}));
    }
    if (name == "broadcast_to") {
      Ints shape(at_.out[0].shape().begin(), at_.out[0].shape().end());
      if (any_batch_ && shape[0] == batch_) shape[0] = 1;  // 1 keeps the extent of the batch
      return set_last(node("Expand", {last(in(0)), constant(shape)}));
    }
    if (name == "to" || (name == "cast" && at_.out[0].dtype() == in(0).dtype())) {
      values_[at_.out[0].id()] = values_[in(0).id()];
      return;
    }
    if (name == "cast") {
      const auto to = as<ops::Cast>().to;
      require(to == DType::float32 || to == DType::float64,
              "[onnx] computes in {}: build the network with the type of its parameters", name_of(to));
      return elementwise("Cast", {}, {{"to", std::int64_t{to == DType::float32 ? 1 : 11}}});
    }
    fail("[onnx] the network uses {}, for which there is no operator here", name);
  }

  bool busy_ = false;
};

}  // namespace

void export_onnx(const std::filesystem::path& path, nn::Module& net, const Shape& input, const OnnxOptions& options) {
  require(options.overwrite || !std::filesystem::exists(path), "[onnx] {} exists already", path.string());
  const auto& parameters = net.parameters();
  require(parameters.size() == 0 || parameters[0].value.device() == DeviceKind::cpu,
          "[onnx] a network on a GPU cannot be exported: load its weights on the CPU");
  Untaped scope;
  UseDevice device(DeviceKind::cpu);
  nn::EvaluationMode mode(net);
  onnx::Graph graph;
  // Its values do not matter; random ones avoid 0 / 0.
  const auto x = random_normal(input, {.key = 1}, 0, 1, net.dtype());
  Tensor y;
  {
    Exporter exporter(graph, net, x, options.any_batch);
    y = net(x);
    exporter.finish(y);
  }
  graph.write(path, options.overwrite);
}

}  // namespace mpigrad
