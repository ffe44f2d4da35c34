#include <algorithm>

#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "tests/ops/conformance/onnx_operators.h"

namespace mpigrad::testing {
namespace {

using Arguments = std::vector<Tensor>;

bool given(const Arguments& in, std::size_t i) { return i < in.size() && in[i]; }

// A list of integers: an attribute in older versions of an operator, input `i` in newer ones.
std::vector<std::int64_t> integers(const OnnxNode& node, const std::string& key, const Arguments& in, std::size_t i,
                                   const std::vector<std::int64_t>& otherwise = {}) {
  return given(in, i) ? integers_of(in[i]) : node.integers(key, otherwise);
}

std::vector<int> dimensions(const std::vector<std::int64_t>& axes, int rank) {
  std::vector<int> result;
  for (auto axis : axes) result.push_back(checked_dimension("onnx", static_cast<int>(axis), rank));
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<int> dimensions_from(int first, int rank) {
  std::vector<int> result;
  for (int d = first; d < rank; ++d) result.push_back(d);
  return result;
}

Arguments reshape_operator(const OnnxNode& node, const Arguments& in) {
  auto extents = integers(node, "shape", in, 1);
  if (node.integer("allowzero", 0) == 0)  // otherwise 0 copies the input's extent
    for (std::size_t d = 0; d < extents.size(); ++d)
      if (extents[d] == 0) extents[d] = in[0].dim(static_cast<int>(d));
  return {reshape(in[0], extents)};
}

Arguments flatten_operator(const OnnxNode& node, const Arguments& in) {
  auto axis = static_cast<int>(node.integer("axis", 1));
  if (axis < 0) axis += in[0].rank();
  const Shape& shape = in[0].shape();
  return {reshape(in[0], Shape{shape.elements(0, axis), shape.elements(axis, shape.rank())})};
}

Arguments transpose_operator(const OnnxNode& node, const Arguments& in) {
  std::vector<int> order;
  for (auto axis : node.integers("perm", {})) order.push_back(static_cast<int>(axis));
  if (order.empty())
    for (int d = in[0].rank(); d-- > 0;) order.push_back(d);
  return {permute(in[0], order)};
}

Arguments squeeze_operator(const OnnxNode& node, const Arguments& in) {
  return {squeeze(in[0], dimensions(integers(node, "axes", in, 1), in[0].rank()))};
}

Arguments unsqueeze_operator(const OnnxNode& node, const Arguments& in) {
  const auto axes = integers(node, "axes", in, 1);
  Tensor result = in[0];
  for (int axis : dimensions(axes, in[0].rank() + static_cast<int>(axes.size()))) result = unsqueeze(result, axis);
  return {result};
}

Arguments concat_operator(const OnnxNode& node, const Arguments& in) {
  return {concatenate(in, static_cast<int>(node.integer("axis", 0)))};
}

Arguments split_operator(const OnnxNode& node, const Arguments& in) {
  const int axis = checked_dimension("onnx", static_cast<int>(node.integer("axis", 0)), in[0].rank());
  auto parts = integers(node, "split", in, 1);
  if (parts.empty()) {  // equal parts, the last one shorter
    const auto n = static_cast<std::int64_t>(node.outputs.size()), extent = in[0].dim(axis), part = (extent + n - 1) / n;
    for (std::int64_t i = 0; i < n; ++i) parts.push_back(std::min(part, extent - i * part));
  }
  Arguments result;
  std::int64_t begin = 0;
  for (auto part : parts) {
    result.push_back(slice(in[0], axis, begin, begin + part));
    begin += part;
  }
  return result;
}

Arguments slice_operator(const OnnxNode& node, const Arguments& in) {
  const auto starts = integers(node, "starts", in, 1), ends = integers(node, "ends", in, 2);
  auto axes = integers(node, "axes", in, 3);
  if (axes.empty())
    for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  const auto steps = integers(node, "steps", in, 4, std::vector<std::int64_t>(starts.size(), 1));
  Shape begin(in[0].shape()), end(in[0].shape()), step(in[0].shape());
  for (int d = 0; d < in[0].rank(); ++d) begin[d] = 0, step[d] = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const int d = checked_dimension("onnx", static_cast<int>(axes[i]), in[0].rank());
    const auto extent = in[0].dim(d);
    // Negative positions count from the end; positions beyond an end mean the end.
    const auto place = [extent](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + extent : at, 0, extent); };
    if (steps[i] < 0) throw NotOffered("Slice: negative steps are not part of mpigrad");
    begin[d] = place(starts[i]), end[d] = std::max(begin[d], place(ends[i])), step[d] = steps[i];
  }
  return {slice(in[0], begin, end, step)};
}

Arguments pad_operator(const OnnxNode& node, const Arguments& in) {
  const auto mode = node.text("mode", "constant");
  if (mode != "constant") throw NotOffered("Pad: mode " + mode + " is not part of mpigrad");
  const auto pads = integers(node, "pads", in, 1);
  const double value = given(in, 2) ? in[2].item() : node.real("value", 0);
  std::vector<std::int64_t> axes = integers(node, "axes", in, 3);
  if (axes.empty())
    for (int d = 0; d < in[0].rank(); ++d) axes.push_back(d);
  Shape low(in[0].shape()), high(in[0].shape());
  for (int d = 0; d < in[0].rank(); ++d) low[d] = high[d] = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const int d = checked_dimension("onnx", static_cast<int>(axes[i]), in[0].rank());
    low[d] = pads[i], high[d] = pads[axes.size() + i];
  }
  return {pad(in[0], low, high, value)};
}

// Broadcasts in both directions.
Arguments expand_operator(const OnnxNode&, const Arguments& in) {
  const auto asked = integers_of(in[1]);
  Shape shape{std::span<const std::int64_t>(asked)};
  while (shape.rank() < in[0].rank()) {
    std::vector<std::int64_t> longer(shape.begin(), shape.end());
    longer.insert(longer.begin(), 1);
    shape = Shape(std::span<const std::int64_t>(longer));
  }
  for (int i = 1; i <= in[0].rank(); ++i)
    if (shape[-i] == 1) shape[-i] = in[0].dim(-i);
  return {broadcast_to(in[0], shape)};
}

Arguments tile_operator(const OnnxNode&, const Arguments& in) {
  Tensor result = in[0];
  const auto repeats = integers_of(in[1]);
  for (std::size_t d = 0; d < repeats.size(); ++d)
    result = concatenate(Arguments(static_cast<std::size_t>(repeats[d]), result), static_cast<int>(d));
  return {result};
}

Arguments gather_operator(const OnnxNode& node, const Arguments& in) {
  const int axis = checked_dimension("onnx", static_cast<int>(node.integer("axis", 0)), in[0].rank());
  require(in[1].rank() == 1, "[onnx] Gather is run for lists of indices only: {}", in[1]);
  const Tensor end = full({}, static_cast<double>(in[0].dim(axis)), DType::int64), zero = full({}, 0, DType::int64);
  const Tensor indices = where(less(in[1], zero), in[1] + end, in[1]);
  std::vector<int> order = dimensions_from(0, in[0].rank());  // swaps `axis` with the first dimension; a swap is its own inverse
  std::swap(order[0], order[static_cast<std::size_t>(axis)]);
  return {permute(take(permute(in[0], order), indices), order)};
}

Arguments one_hot_operator(const OnnxNode& node, const Arguments& in) {
  if (node.integer("axis", -1) != -1) throw NotOffered("OneHot: along another dimension than the last is not part of mpigrad");
  const auto values = in[2].to_vector();  // off, on
  const auto depth = integers_of(in[1])[0];
  const Tensor end = full({}, static_cast<double>(depth), DType::int64), zero = full({}, 0, DType::int64);
  const Tensor hot = one_hot(where(less(in[0], zero), in[0] + end, in[0]), depth, DType::float64);
  return {cast(affine(hot, values[1] - values[0], values[0]), in[2].dtype())};
}

// The first extreme element, or on request the last one.
OnnxOperator arg_extremum(bool largest) {
  return [largest](const OnnxNode& node, const Arguments& in) {
    const int axis = checked_dimension("onnx", static_cast<int>(node.integer("axis", 0)), in[0].rank());
    const bool last = node.integer("select_last_index", 0) != 0;
    Tensor x = largest ? in[0] : -in[0];
    if (last) x = flip(x, {axis});
    auto places = integers_of(argmax(x, axis));
    if (last)
      for (auto& place : places) place = in[0].dim(axis) - 1 - place;
    Shape shape;
    for (int d = 0; d < in[0].rank(); ++d)
      if (d != axis) shape.push_back(in[0].dim(d));
      else if (node.integer("keepdims", 1) != 0) shape.push_back(1);
    return Arguments{from_vector(shape, std::vector<double>(places.begin(), places.end()), DType::int64)};
  };
}

using Reduction = Tensor (*)(const Tensor& x, const std::vector<int>& axes, bool keep);

OnnxOperator reduction(Reduction f) {
  return [f](const OnnxNode& node, const Arguments& in) {
    const auto axes = integers(node, "axes", in, 1);
    if (axes.empty() && node.integer("noop_with_empty_axes", 0) != 0) return Arguments{in[0]};
    const int rank = in[0].rank();
    return Arguments{
        f(in[0], axes.empty() ? dimensions_from(0, rank) : dimensions(axes, rank), node.integer("keepdims", 1) != 0)};
  };
}

OnnxOperator extremum(Reduction f) {
  return [reduce = reduction(f)](const OnnxNode& node, const Arguments& in) {
    if (in[0].elements() == 0) throw NotOffered(node.op + ": the extremum of no elements is refused by mpigrad");
    if (in[0].dtype() != DType::boolean) return reduce(node, in);
    Arguments numbers = in;
    numbers[0] = cast(in[0], DType::uint8);
    return Arguments{cast(reduce(node, numbers)[0], DType::boolean)};
  };
}

// (x - mean) / sqrt(variance + epsilon) over `axes`; with `centred` false, x / sqrt(mean(x^2) + epsilon)
Tensor normalised(const Tensor& x, const std::vector<int>& axes, double epsilon, bool centred = true) {
  const Tensor centre = centred ? x - mean(x, axes, true) : x;
  return centre / sqrt(mean(square(centre), axes, true) + epsilon);
}

Arguments layer_normalization(const OnnxNode& node, const Arguments& in) {
  const int first = checked_dimension("onnx", static_cast<int>(node.integer("axis", -1)), in[0].rank());
  const auto axes = dimensions_from(first, in[0].rank());
  const double epsilon = node.real("epsilon", 1e-5);
  Tensor y = normalised(in[0], axes, epsilon, node.op == "LayerNormalization") * in[1];
  if (node.op == "RMSNormalization") return {y};
  if (given(in, 2)) y = y + in[2];
  const Tensor centre = mean(in[0], axes, true);
  return {y, centre, reciprocal(sqrt(mean(square(in[0] - centre), axes, true) + epsilon))};
}

Arguments group_normalization(const OnnxNode& node, const Arguments& in) {
  const Shape& shape = in[0].shape();  // [N, C, ...]
  const auto groups = node.integer("num_groups", 1);
  const Tensor grouped = reshape(in[0], Shape{shape[0], groups, shape.elements() / (shape[0] * groups)});
  const Tensor y =
      reshape(normalised(grouped, {2}, node.real("epsilon", 1e-5)), Shape{shape[0], shape[1], shape.elements(2, shape.rank())});
  return {reshape(y * unsqueeze(in[1], 1) + unsqueeze(in[2], 1), shape)};
}

Arguments mean_variance_normalization(const OnnxNode& node, const Arguments& in) {
  return {normalised(in[0], dimensions(node.integers("axes", {0, 2, 3}), in[0].rank()), 1e-9)};
}

Arguments lp_normalization(const OnnxNode& node, const Arguments& in) {
  const std::vector<int> axes = {checked_dimension("onnx", static_cast<int>(node.integer("axis", -1)), in[0].rank())};
  const Tensor norm = node.integer("p", 2) == 1 ? sum(abs(in[0]), axes, true) : sqrt(sum(square(in[0]), axes, true));
  return {where(equal(norm, zeros_like(norm)), zeros_like(in[0]), in[0] / norm)};
}

Arguments depth_to_space(const OnnxNode& node, const Arguments& in) {
  const Shape& s = in[0].shape();  // [N, C, H, W]
  const auto b = node.integer("blocksize", 1), channels = s[1] / (b * b);
  if (node.text("mode", "DCR") == "CRD")
    return {reshape(permute(reshape(in[0], Shape{s[0], channels, b, b, s[2], s[3]}), {0, 1, 4, 2, 5, 3}),
                    Shape{s[0], channels, s[2] * b, s[3] * b})};
  return {reshape(permute(reshape(in[0], Shape{s[0], b, b, channels, s[2], s[3]}), {0, 3, 4, 1, 5, 2}),
                  Shape{s[0], channels, s[2] * b, s[3] * b})};
}

Arguments constant_operator(const OnnxNode& node, const Arguments&) {
  const auto values = node.integers("value", {});
  return {from_vector(Shape{static_cast<std::int64_t>(values.size())}, std::vector<double>(values.begin(), values.end()),
                      DType::int64)};
}

Tensor sum_of_squares(const Tensor& x, const std::vector<int>& axes, bool keep) { return sum(square(x), axes, keep); }
Tensor l1(const Tensor& x, const std::vector<int>& axes, bool keep) { return sum(abs(x), axes, keep); }
Tensor l2(const Tensor& x, const std::vector<int>& axes, bool keep) { return sqrt(sum(square(x), axes, keep)); }
Tensor log_sum(const Tensor& x, const std::vector<int>& axes, bool keep) { return log(sum(x, axes, keep)); }

}  // namespace

OnnxTable onnx_array_operators() {
  return {
      {"Reshape", reshape_operator},
      {"Flatten", flatten_operator},
      {"Transpose", transpose_operator},
      {"Squeeze", squeeze_operator},
      {"Unsqueeze", unsqueeze_operator},
      {"Concat", concat_operator},
      {"Split", split_operator},
      {"Slice", slice_operator},
      {"Pad", pad_operator},
      {"Expand", expand_operator},
      {"Tile", tile_operator},
      {"Gather", gather_operator},
      {"OneHot", one_hot_operator},
      {"Constant", constant_operator},
      {"DepthToSpace", depth_to_space},
      {"ArgMax", arg_extremum(true)},
      {"ArgMin", arg_extremum(false)},
      {"ReduceSum", reduction(sum)},
      {"ReduceMean", reduction(mean)},
      {"ReduceMax", extremum(max)},
      {"ReduceMin", extremum(min)},
      {"ReduceSumSquare", reduction(sum_of_squares)},
      {"ReduceL1", reduction(l1)},
      {"ReduceL2", reduction(l2)},
      {"ReduceLogSum", reduction(log_sum)},
      {"ReduceLogSumExp", reduction(logsumexp)},
      {"LayerNormalization", layer_normalization},
      {"RMSNormalization", layer_normalization},
      {"GroupNormalization", group_normalization},
      {"MeanVarianceNormalization", mean_variance_normalization},
      {"LpNormalization", lp_normalization},
  };
}

}  // namespace mpigrad::testing
