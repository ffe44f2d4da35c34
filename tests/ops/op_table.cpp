#include "tests/ops/op_table.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <regex>
#include <sstream>

#include "framework/base/error.h"
#include "framework/tensor/random.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/activation_adjoints.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/scalar.h"
#include "ops/linear/matmul.h"
#include "ops/loss/loss.h"
#include "ops/norm/channel_norm.h"
#include "ops/pool/pool.h"
#include "ops/random/random.h"
#include "ops/recompute.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/logsumexp.h"
#include "ops/softmax/softmax.h"
#include "ops/views/pack_boxes.h"
#include "ops/views/resample.h"
#include "ops/views/to_device.h"
#include "ops/views/views.h"

#ifndef MPIGRAD_SOURCE_ROOT
#define MPIGRAD_SOURCE_ROOT "."
#endif

namespace mpigrad::testing {
namespace {

using Operand = Row::Operand;

Operand apart(const Shape& shape, double low = -1, double high = 1) { return {shape, low, high, true}; }

#define F(...) [](const Tensors& x) -> Tensors { return {__VA_ARGS__}; }

Tensor labels() { return from_vector({2, 3}, {0, 3, 1, 2, 2, 0}, DType::int64); }
Tensor indices() { return from_vector({5}, {2, 0, 2, 1, 2}, DType::int64); }
Tensor mask(const Shape& shape) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.elements(); ++i) values.push_back(static_cast<double>(i % 3 == 0));
  return from_vector(shape, values, DType::boolean);
}
// Of views' tensors: 11 elements, some of them twice.
std::vector<Box> overlapping_boxes() { return {{{0, 0, 2}, {3, 2, 3}}, {{1, 1, 2}, {2, 2, 3}}, {{0, 0, 0}, {1, 1, 4}}}; }
Tensors with_statistics(const std::pair<Tensor, BatchNormStatistics>& result) {
  return {result.first, result.second.mean, result.second.variance};
}

std::vector<Row> elementwise_rows() {
  const Shape s{3, 4};
  return {
      {"affine", {{s}}, F(affine(x[0], -1.7, 0.3))},
      {"negate", {{s}}, F(-x[0]), true},
      {"exp", {{s}}, F(exp(x[0]))},
      {"expm1", {{s}}, F(expm1(x[0]))},
      {"log", {{s, 0.5, 2}}, F(log(x[0]))},
      {"log1p", {{s, -0.5, 2}}, F(log1p(x[0]))},
      {"sqrt", {{s, 0.5, 2}}, F(sqrt(x[0]))},
      {"square", {{s}}, F(square(x[0]))},
      {"reciprocal", {{s, 0.5, 2}}, F(reciprocal(x[0]))},
      {"pow of a number", {{s, 0.5, 2}}, F(pow(x[0], 2.6))},
      {"pow 0", {{s, 0.5, 2}}, F(pow(x[0], 0.0))},
      {"abs", {apart(s)}, F(abs(x[0]))},
      {"sign", {apart(s)}, F(sign(x[0]))},
      {"floor", {apart(s, -2.3, 2.2)}, F(floor(x[0]))},
      {"ceil", {apart(s, -2.3, 2.2)}, F(ceil(x[0]))},
      {"sin", {{s}}, F(sin(x[0]))},
      {"cos", {{s}}, F(cos(x[0]))},
      {"tanh", {{s}}, F(tanh(x[0]))},
      {"erf", {{s}}, F(erf(x[0]))},
      {"sigmoid", {{s, -3, 3}}, F(sigmoid(x[0]))},
      {"softplus", {{s, -3, 3}}, F(softplus(x[0]))},
      {"relu", {apart(s)}, F(relu(x[0]))},
      {"leaky_relu", {apart(s)}, F(leaky_relu(x[0], 0.1))},
      {"leaky_relu_adjoint", {{s}, apart(s)}, F(leaky_relu_adjoint(x[0], x[1], 0.1))},
      {"clamp", {apart(s)}, F(clamp(x[0], -0.32, 0.57))},
      {"add", {{s}, {s}}, F(x[0] + x[1]), true},
      {"add, first repeats", {{{4}}, {{2, 3, 4}}}, F(x[0] + x[1]), true},
      {"add, both repeat", {{{3, 1}}, {{2, 1, 4}}}, F(x[0] + x[1]), true},
      {"subtract", {{{2, 3, 4}}, {{3, 1}}}, F(x[0] - x[1]), true},
      {"multiply", {{s}, {s}}, F(x[0] * x[1])},
      {"multiply, first repeats", {{Shape{}}, {s}}, F(x[0] * x[1])},
      {"multiply, both repeat", {{{3, 1}}, {{2, 1, 4}}}, F(x[0] * x[1])},
      {"multiply by a constant", {{s}}, F(square(x[0] * constant(ones_like(x[0]) * 2) * x[0]))},
      {"multiply a constant", {{{3, 1}}}, F(square(constant(full({4}, 3, x[0].dtype())) * x[0]))},
      {"multiply by itself", {{s}}, F(x[0] * x[0])},
      {"divide", {{s}, {s, 0.5, 2}}, F(x[0] / x[1])},
      {"divide, first repeats", {{{4}}, {s, 0.5, 2}}, F(x[0] / x[1])},
      {"divide, second repeats", {{s}, {{3, 1}, 0.5, 2}}, F(x[0] / x[1])},
      {"divide by a number", {{s}}, F(x[0] / 1.3), true},
      {"divide a number", {{s, 0.5, 2}}, F(1.3 / x[0])},
      {"maximum", {apart(s), apart(s, -1.1, 0.93)}, F(maximum(x[0], x[1]))},
      {"maximum, second repeats", {apart(s), apart({4}, -0.9, 1.13)}, F(maximum(x[0], x[1]))},
      {"minimum", {apart(s), apart(s, -1.1, 0.93)}, F(minimum(x[0], x[1]))},
      {"pow", {{s, 0.5, 2}, {s}}, F(pow(x[0], x[1]))},
      {"pow, both repeat", {{{3, 1}, 0.5, 2}, {{2, 1, 4}}}, F(pow(x[0], x[1]))},
      {"where", {{s}, {s}}, F(where(mask({3, 4}), x[0], x[1])), true},
      {"where, all repeat", {{{3, 1}}, {Shape{}}}, F(where(mask({1, 4}), x[0], x[1])), true},
      {"where of a comparison", {apart(s), {s}}, F(where(greater(x[0], x[1] * 0.0), square(x[0]), x[0] * x[1]))},
      // Rounding to float32 hides small steps; a quadratic is exact with large ones.
      {"cast", {{s}}, F(square(cast(cast(x[0], DType::float32), x[0].dtype()))), false, 0.5, 1e-5},
  };
}

std::vector<Row> reduction_rows() {
  const Shape s{2, 3, 4};
  return {
      {"sum of all", {{s}}, F(sum(x[0])), true},
      {"sum over dimensions", {{s}}, F(sum(x[0], {0, 2})), true},
      {"sum, kept", {{s}}, F(sum(x[0], {-1}, true)), true},
      {"sum of a square", {{s}}, F(sum(square(x[0]), {1}))},
      {"mean of all", {{s}}, F(mean(x[0])), true},
      {"mean over dimensions", {{s}}, F(mean(x[0], {1}, true)), true},
      {"max of all", {apart(s)}, F(max(x[0]))},
      {"max over dimensions", {apart(s)}, F(max(x[0], {0, 2}))},
      {"max of a product", {apart(s), {s, 0.98, 1.02}}, F(max(x[0] * x[1], {1}, true))},
      {"min over a dimension", {apart(s)}, F(square(min(x[0], {-1})))},
      {"dot", {{s}, {s}}, F(dot(x[0], x[1]))},
      {"broadcast_to", {{{3, 1}}}, F(broadcast_to(x[0], {2, 3, 4})), true},
      {"softmax", {{s}}, F(softmax(x[0]))},
      {"softmax along the first dimension", {{s}}, F(softmax(x[0], 0))},
      {"log_softmax", {{s}}, F(log_softmax(x[0]))},
      {"log_softmax along the middle", {{s}}, F(log_softmax(x[0], 1))},
      {"logsumexp", {{s}}, F(logsumexp(x[0], {-1}))},
      {"logsumexp along the middle, kept", {{s}}, F(logsumexp(x[0], {1}, true))},
      {"logsumexp of a matrix's columns", {{{3, 4}}}, F(logsumexp(x[0], {0}))},
      {"exp_scaled by rows", {{{3, 4}}, {{3, 1}}, {{3, 1}}}, F(exp_scaled(x[0], x[1], x[2]))},
      {"exp_scaled by columns", {{{3, 4}}, {{1, 4}}, {{1, 4}}}, F(exp_scaled(x[0], x[1], x[2]))},
      {"logsumexp of several, kept", {{s}}, F(logsumexp(x[0], {0, 2}, true))},
  };
}

std::vector<Row> view_rows() {
  const Shape s{3, 4, 5};
  return {
      {"reshape", {{s}}, F(reshape(x[0], {4, -1})), true},
      {"reshape of a product", {{s}}, F(reshape(square(x[0]), {60}) * reshape(x[0], {60}))},
      {"squeeze", {{{3, 1, 2, 1}}}, F(squeeze(x[0], {1, -1})), true},
      {"unsqueeze", {{s}}, F(unsqueeze(x[0], -1)), true},
      {"permute", {{{2, 3, 4, 5}}}, F(permute(x[0], {2, 0, 3, 1})), true},
      {"transpose", {{{3, 5}}}, F(transpose(x[0])), true},
      {"slice", {{s}}, F(slice(x[0], {1, 0, 2}, {3, 4, 4})), true},
      {"slice with steps", {{s}}, F(slice(x[0], {0, 1, 0}, {3, 4, 5}, {2, 2, 3})), true},
      {"slice of one dimension", {{s}}, F(slice(x[0], 1, 1, 3)), true},
      {"slice, squared", {{s}}, F(square(slice(x[0], {0, 1, 0}, {3, 4, 5}, {2, 2, 3})))},
      {"slice to nothing", {{s}}, F(slice(x[0], 1, 2, 2), sum(x[0])), true},
      {"pad", {{s}}, F(pad(x[0], {1, 0, 2}, {0, 3, 1})), true},
      {"pad with a value", {{s}}, F(square(pad(x[0], {1, 0, 2}, {0, 3, 1}, 0.7)))},
      {"concatenate", {{{2, 3}}, {{2, 1}}, {{2, 4}}}, F(concatenate({x[0], x[1], x[2]}, -1)), true},
      {"concatenate with itself", {{{2, 3}}}, F(square(concatenate({x[0], x[0] * 2}, 0)))},
      {"pack_boxes", {{s}}, F(pack_boxes(x[0], overlapping_boxes())), true},
      {"add_boxes", {{s}, {{11}}}, F(add_boxes(x[0], x[1], overlapping_boxes())), true},
      {"with_packed_boxes",
       {{s}},
       F(with_packed_boxes(x[0], overlapping_boxes()).x, square(with_packed_boxes(x[0], overlapping_boxes()).packed))},
      {"flip", {{s}}, F(flip(x[0], {0, -1})), true},
      {"to", {{s}}, F(mpigrad::apply(ops::ToDevice{.device = DeviceKind::cpu}, {x[0]})), true},
      {"take", {{{3, 2}}}, F(take(x[0], indices())), true},
      {"take, squared", {{{3, 2}}}, F(square(take(x[0], indices())))},
      {"scatter_add", {{{5, 2}}}, F(scatter_add(x[0], indices(), 4)), true},
      {"scatter_add, squared", {{{5, 2}}}, F(square(scatter_add(x[0], indices(), 4)))},
      {"dropout", {{s}}, F(dropout(x[0], 0.6, {.key = 3, .stream = 9})), true},
  };
}

std::vector<Row> matrix_rows() {
  std::vector<Row> rows;
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      const MatmulAttributes a{.transpose_a = ta, .transpose_b = tb};
      const auto f = [a](const Tensors& x) -> Tensors { return {matmul(x[0], x[1], a)}; };
      const auto named = [&](const char* text) {
        return fmt::format("matmul{}{}{}", ta ? ", a transposed" : "", tb ? ", b transposed" : "", text);
      };
      const Shape left = ta ? Shape{4, 3} : Shape{3, 4}, right = tb ? Shape{2, 4} : Shape{4, 2};
      const auto batched = [](const std::vector<std::int64_t>& batch, const Shape& matrix) {
        Shape shape{std::span<const std::int64_t>(batch)};
        for (const auto extent : matrix) shape.push_back(extent);
        return shape;
      };
      rows.push_back({named(""), {{left}, {right}}, f});
      rows.push_back({named(", batched"), {{batched({2, 3}, left)}, {batched({2, 3}, right)}}, f});
      rows.push_back({named(", batch repeats in a"), {{left}, {batched({3}, right)}}, f});
      rows.push_back({named(", batch repeats in b"), {{batched({2, 3}, left)}, {right}}, f});
      rows.push_back({named(", batches repeat in parts"), {{batched({2, 1}, left)}, {batched({3}, right)}}, f});
    }
  rows.push_back({"linear", {{{3, 4}}, {{2, 4}}}, F(local::linear(x[0], x[1]))});
  rows.push_back({"linear with bias", {{{3, 4}}, {{2, 4}}, {{2}}}, F(local::linear(x[0], x[1], x[2]))});
  rows.push_back({"linear with bias and slope", {{{3, 4}}, {{5, 4}}, {{5}}}, F(local::linear(x[0], x[1], x[2], 0.1))});
  rows.push_back({"linear with slope", {{{3, 4}}, {{5, 4}}}, F(local::linear(x[0], x[1], {}, 0.2))});
  return rows;
}

std::vector<Row> convolution_rows() {
  struct Case {
    const char* text;
    Shape x, w;
    ConvAttributes a;
  };
  const std::vector<Case> cases{
      {"", {2, 4, 3, 5, 2}, {3, 2, 2, 3, 2}, {}},
      {", padded", {1, 4, 3, 4, 2}, {2, 3, 3, 3, 2}, {.padding_low = 1, .padding_high = 1}},
      {", strides and dilations",
       {1, 6, 5, 7, 2},
       {2, 2, 3, 2, 2},
       {.stride = {2, 1, 3}, .dilation = {3, 2, 1}, .padding_low = 1}},
      {", uneven padding",
       {1, 4, 5, 3, 2},
       {2, 2, 2, 3, 2},
       {.stride = {1, 2, 1}, .padding_low = {0, 1, 2}, .padding_high = {2, 0, 1}}},
      {", negative padding", {1, 6, 5, 5, 2}, {2, 2, 2, 2, 2}, {.padding_low = {-1, 1, 0}, .padding_high = {0, -1, -2}}},
      {", groups", {2, 3, 3, 4, 4}, {6, 2, 2, 2, 2}, {.stride = {1, 1, 2}, .padding_high = 1, .groups = 2}},
      {", one channel per group",
       {1, 1, 4, 4, 3},
       {3, 1, 3, 3, 1},
       {.padding_low = {0, 1, 1}, .padding_high = {0, 1, 1}, .groups = 3}},
      {", two dimensions", {2, 1, 5, 4, 2}, {3, 1, 3, 2, 2}, {.stride = {1, 2, 1}}},
      {", one dimension", {2, 1, 1, 7, 2}, {3, 1, 1, 3, 2}, {.padding_low = {0, 0, 2}}},
      {", inputs that no window reads", {1, 5, 4, 4, 1}, {2, 1, 1, 1, 1}, {.stride = {3, 2, 2}}},
  };
  std::vector<Row> rows;
  for (const auto& one : cases) {
    const auto a = one.a;
    const auto extent = Extent3{one.x[1], one.x[2], one.x[3]}, kernel = Extent3{one.w[1], one.w[2], one.w[3]};
    Extent3 out{};
    for (std::size_t i = 0; i < 3; ++i)
      out[i] = window_outputs(extent[i], kernel[i], a.stride[i], a.dilation[i], a.padding_low[i], a.padding_high[i]);
    const Shape g{one.x[0], out[0], out[1], out[2], one.w[0]}, bias{one.w[0]};
    const std::string text = one.text;
    rows.push_back(
        {"conv" + text, {{one.x}, {one.w}}, [a](const Tensors& x) -> Tensors { return {local::conv(x[0], x[1], a)}; }});
    rows.push_back({"conv_data" + text, {{g}, {one.w}}, [a, extent](const Tensors& x) -> Tensors {
                      return {conv_data(x[0], x[1], extent, a)};
                    }});
    rows.push_back({"conv_weight" + text, {{one.x}, {g}}, [a, kernel](const Tensors& x) -> Tensors {
                      return {conv_weight(x[0], x[1], kernel, a)};
                    }});
    rows.push_back({"conv_bias_activation" + text,
                    {{one.x, 0.2, 1}, {one.w, 0.2, 1}, {bias, 3, 4}},
                    [a](const Tensors& x) -> Tensors { return {local::conv_bias_activation(x[0], x[1], x[2], 0.1, a)}; }});
  }
  const Shape x{1, 3, 3, 4, 4}, w{4, 2, 2, 3, 2};
  rows.push_back({"conv_bias_activation without activation",
                  {{x}, {{2, 2, 2, 3, 4}}, {{2}}},
                  F(local::conv_bias_activation(x[0], x[1], x[2], 1))});
  rows.push_back({"conv_bias_activation without bias",
                  {{x, 0.2, 1}, {{2, 2, 2, 3, 4}, -1, -0.2}},
                  F(local::conv_bias_activation(x[0], x[1], {}, 0.3))});
  rows.push_back({"conv_transpose", {{x}, {w}}, F(local::conv_transpose(x[0], x[1], {.stride = 2}))});
  rows.push_back(
      {"conv_transpose, padding and output padding",
       {{x}, {w}},
       F(local::conv_transpose(
           x[0], x[1], {.stride = {2, 3, 1}, .padding_low = {1, 0, 1}, .padding_high = 1, .output_padding = {1, 2, 0}}))});
  rows.push_back({"conv_transpose, dilation and groups",
                  {{x}, {w}},
                  F(local::conv_transpose(x[0], x[1], {.stride = 2, .dilation = {1, 2, 1}, .output_padding = 1, .groups = 2}))});
  return rows;
}

std::vector<Row> pooling_rows() {
  struct Case {
    const char* text;
    Shape x;
    PoolAttributes a;
  };
  const std::vector<Case> cases{
      {"", {2, 4, 4, 6, 2}, {.kernel = 2, .stride = 2}},
      {", overlapping", {1, 5, 4, 5, 3}, {.kernel = 3, .stride = {1, 2, 1}}},
      {", padded", {1, 4, 5, 4, 2}, {.kernel = 3, .stride = 2, .padding_low = 1, .padding_high = {1, 0, 1}}},
      {", padding not counted",
       {1, 4, 5, 4, 2},
       {.kernel = 3, .stride = 2, .padding_low = 1, .padding_high = {1, 0, 1}, .count_include_pad = false}},
      {", ceil mode", {1, 5, 6, 4, 2}, {.kernel = 2, .stride = {2, 4, 3}, .padding_high = {0, 0, 1}, .ceil_mode = true}},
      {", ceil mode, padding not counted",
       {1, 5, 6, 4, 2},
       {.kernel = 3, .stride = 2, .padding_low = 1, .ceil_mode = true, .count_include_pad = false}},
      {", dilated", {1, 6, 5, 4, 2}, {.kernel = {2, 3, 2}, .stride = {2, 1, 1}, .dilation = {3, 2, 1}, .padding_low = {0, 1, 1}}},
      {", all", {2, 3, 2, 3, 2}, {.kernel = {3, 2, 3}}},
  };
  std::vector<Row> rows;
  for (const auto& one : cases) {
    const auto a = one.a;
    rows.push_back({std::string("avg_pool") + one.text,
                    {{one.x}},
                    [a](const Tensors& x) -> Tensors { return {local::avg_pool(x[0], a)}; },
                    true});
    rows.push_back({std::string("leaky_avg_pool") + one.text, {apart(one.x)}, [a](const Tensors& x) -> Tensors {
                      return {local::leaky_avg_pool(x[0], 0.3, a)};
                    }});
    rows.push_back({std::string("max_pool") + one.text, {apart(one.x, -2, 2)}, [a](const Tensors& x) -> Tensors {
                      return {local::max_pool(x[0], a)};
                    }});
    rows.push_back({std::string("max_pool of a square") + one.text, {apart(one.x, 1, 6)}, [a](const Tensors& x) -> Tensors {
                      return {local::max_pool(square(x[0]), a)};
                    }});
  }
  rows.push_back({"leaky_avg_pool, 19 channels", {apart({1, 2, 4, 2, 19})}, F(local::leaky_avg_pool(x[0], 0.1, {.kernel = 2}))});
  rows.push_back({"leaky_avg_pool, 16 channels", {apart({2, 2, 2, 3, 16})}, F(local::leaky_avg_pool(x[0], 0, {.kernel = 2}))});
  return rows;
}

std::vector<Row> normalisation_and_loss_rows() {
  const Shape s{2, 3, 4};
  const TensorFunction nested = F(recompute([p = x[1]](const Tensor& z) { return tanh(matmul(z, p)) * sum(p); }, x[0]));
  return {
      {"map_lines, linear", {{{2, 5, 3}}}, F(interpolate_along(x[0], 1, {Interpolation::linear, 5, 8, 0, 5, 0, 8})), true},
      {"map_lines, a part", {{{2, 3, 3}}}, F(interpolate_along(x[0], 1, {Interpolation::linear, 5, 8, 1, 4, 3, 6})), true},
      {"map_lines, nearest", {{{5, 3}}}, F(interpolate_along(x[0], 0, {Interpolation::nearest, 5, 3, 0, 5, 0, 3})), true},
      {"channel_moments",
       {{s}},
       [](const Tensors& x) -> Tensors {
         const auto m = channel_moments(x[0]);
         return {m.mean, m.m2};
       }},
      {"channel_moments of each sample",
       {{s}},
       [](const Tensors& x) -> Tensors {
         const auto m = channel_moments(x[0], true);
         return {m.mean, m.m2};
       }},
      {"channel_affine of each sample",
       {{s}, {{2, 4}}, {{2, 4}}, {{2, 4}}},
       F(channel_affine(x[0], wide(x[1]), wide(x[2]), wide(x[3])))},
      {"channel_dots of each sample",
       {{s}, {s}, {{2, 4}}},
       [](const Tensors& x) {
         return apply_all(ops::ChannelDots{}, {x[0], x[1], wide(x[2])});
       }},
      {"channel_affine", {{s}, {{4}}, {{4}}, {{4}}}, F(channel_affine(x[0], wide(x[1]), wide(x[2]), wide(x[3])))},
      {"channel_affine with activation",
       {apart(s), {{4}, -0.01, 0.01}, {{4}, 0.9, 1.1}, {{4}, -0.01, 0.01}},
       F(channel_affine(x[0], wide(x[1]), wide(x[2]), wide(x[3]), 0.2)),
       false,
       1e-3},
      {"bias_activation", {apart(s), {{4}, -0.01, 0.01}}, F(local::bias_activation(x[0], x[1], 0.2)), false, 1e-3},
      {"bias_activation_adjoint",
       {{s}, apart(s)},
       [](const Tensors& x) { return apply_all(ops::BiasActivationAdjoint{0.2}, x); }},
      {"channel_dots",
       {{s}, {s}, {{4}}},
       [](const Tensors& x) {
         return apply_all(ops::ChannelDots{}, {x[0], x[1], wide(x[2])});
       }},
      {"batch_norm",
       {{s}, {{4}, 0.5, 1.5}, {{4}}},
       [](const Tensors& x) { return with_statistics(local::norm(x[0], wide(x[1]), wide(x[2]), 1e-3)); }},
      {"normalise",
       {{s}, {{4}}, {{4}, 0.5, 1.5}, {{4}}, {{4}}},
       F(local::normalise(x[0], {wide(x[1]), wide(x[2])}, wide(x[3]), wide(x[4]), 1e-3))},
      {"mse", {{s}, {s}}, F(mse(x[0], x[1]))},
      {"mse, none", {{s}, {s}}, F(mse(x[0], x[1], Reduction::none))},
      {"mae", {apart(s), apart(s, -1.1, 0.93)}, F(mae(x[0], x[1]))},
      {"mae, sum", {apart(s), apart(s, -1.1, 0.93)}, F(mae(x[0], x[1], Reduction::sum))},
      {"cross_entropy", {{s}}, F(cross_entropy(x[0], labels()))},
      {"cross_entropy, sum", {{s}}, F(cross_entropy(x[0], labels(), {.reduction = Reduction::sum}))},
      {"cross_entropy, none", {{s}}, F(cross_entropy(x[0], labels(), {.reduction = Reduction::none}))},
      {"cross_entropy, weights",
       {{s}},
       F(cross_entropy(x[0], labels(), {.weights = constant(from_vector({4}, {1, 0.5, 2, 0.25}, x[0].dtype()))}))},
      {"cross_entropy, ignored labels", {{s}}, F(cross_entropy(x[0], labels(), {.ignore_index = 2}))},
      {"cross_entropy, weights and ignored labels",
       {{s}},
       F(cross_entropy(x[0], labels(),
                       {.weights = constant(from_vector({4}, {1, 0.5, 2, 0.25}, x[0].dtype())), .ignore_index = 0}))},
      {"negative_log_likelihood", {{s}}, F(negative_log_likelihood(x[0], labels()))},
      {"binary_cross_entropy_with_logits", {{s, -3, 3}, {s, 0, 1}}, F(binary_cross_entropy_with_logits(x[0], x[1]))},
      {"binary_cross_entropy", {{s, 0.2, 0.8}, {s, 0, 1}}, F(binary_cross_entropy(x[0], x[1]))},
      {"recompute", {{{2, 3}}, {{3, 4}}}, nested},
      {"recompute within recompute",
       {{{2, 3}}, {{3, 4}}},
       [nested](const Tensors& x) -> Tensors {
         return {recompute([nested, p = x[1]](const Tensor& z) { return square(nested({sin(z), p})[0]); }, x[0] * x[0])};
       }},
      {"everything at once",
       {{{2, 3}}, {{4, 3}}, {{4}}},
       F(mean(square(softmax(local::linear(tanh(x[0]), x[1], x[2])) - reshape(concatenate({x[2], x[2]}, 0), {2, 4}))))},
  };
}

#undef F

}  // namespace

Tensors make_operands(const Row& row, DType dtype) {
  Tensors result;
  for (std::size_t i = 0; i < row.operands.size(); ++i) {
    const auto& operand = row.operands[i];
    const Philox random{.key = 7, .stream = i};
    const auto n = static_cast<std::size_t>(operand.shape.elements());
    std::vector<double> values(n);
    for (std::size_t j = 0; j < n; ++j) values[j] = random.uniform(j);
    if (operand.separated) {
      std::vector<std::size_t> order(n);
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](auto a, auto b) { return values[a] < values[b]; });
      for (std::size_t j = 0; j < n; ++j) values[order[j]] = (static_cast<double>(j) + 0.3) / static_cast<double>(n);
    }
    for (auto& value : values) value = operand.low + (operand.high - operand.low) * value;
    result.push_back(from_vector(operand.shape, values, dtype));
  }
  return result;
}

Tensor wide(const Tensor& x) { return cast(x, is_half(x.dtype()) ? DType::float32 : x.dtype()); }

std::vector<Row> op_table() {
  std::vector<Row> rows;
  for (const auto& part : {elementwise_rows(), reduction_rows(), view_rows(), matrix_rows(), convolution_rows(), pooling_rows(),
                           normalisation_and_loss_rows()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

std::set<std::string> declared_ops(bool with_constants) {
  std::set<std::string> result;
#define MPIGRAD_MAKE(F, name, kind) result.insert(#name);
  MPIGRAD_UNARY_FUNCTIONS(MPIGRAD_MAKE)
  MPIGRAD_BINARY_FUNCTIONS(MPIGRAD_MAKE)
  if (with_constants) {
    MPIGRAD_COMPARE_FUNCTIONS(MPIGRAD_MAKE)
  }
#undef MPIGRAD_MAKE
  // A program that was built elsewhere is told where the tree lies here.
  const char* told = std::getenv("MPIGRAD_SOURCE_ROOT");
  const std::filesystem::path root = told != nullptr ? told : MPIGRAD_SOURCE_ROOT;
  for (const auto& file : std::filesystem::recursive_directory_iterator(root / "ops")) {
    if (file.path().extension() != ".h") continue;
    std::ifstream stream(file.path());
    std::stringstream text;
    text << stream.rdbuf();
    const std::string source = text.str();
    const std::regex traits(R"re(OpTraits traits\(\) \{\s*return \{\.name = "([^"]+)"([^}]*)\})re");
    for (auto at = std::sregex_iterator(source.begin(), source.end(), traits); at != std::sregex_iterator(); ++at)
      if (with_constants || at->str(2).find("differentiable = false") == std::string::npos) result.insert(at->str(1));
  }
  return result;
}

}  // namespace mpigrad::testing
