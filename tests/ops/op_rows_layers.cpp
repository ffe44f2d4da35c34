// Rows of the table of ops: products, convolutions, pooling, norms and losses.

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/distributed/distributed.h"
#include "comm/distributed/upsample.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/loss/loss.h"
#include "ops/norm/channel_norm.h"
#include "ops/pool/pool.h"
#include "ops/recompute.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/resample.h"
#include "ops/views/views.h"
#include "tests/ops/op_rows.h"

namespace mpigrad::testing {
namespace {

#define F(...) [](const Tensors& x) -> Tensors { return {__VA_ARGS__}; }

Tensor labels() { return from_vector({2, 3}, {0, 3, 1, 2, 2, 0}, DType::int64); }
Tensors with_statistics(const std::pair<Tensor, BatchNormStatistics>& result) {
  return {result.first, result.second.mean, result.second.variance};
}

}  // namespace

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
  rows.push_back({"linear with bias and activation",
                  {{{3, 4}}, {{5, 4}}, {{5}}},
                  F(local::linear(x[0], x[1], x[2], Activation::leaky_relu(0.1)))});
  rows.push_back({"linear with activation", {{{3, 4}}, {{5, 4}}}, F(local::linear(x[0], x[1], {}, Activation::leaky_relu(0.2)))});
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
      {", padded", {1, 4, 3, 4, 2}, {2, 3, 3, 3, 2}, {.padding = 1}},
      {", strides and dilations",
       {1, 6, 5, 7, 2},
       {2, 2, 3, 2, 2},
       {.stride = {2, 1, 3}, .dilation = {3, 2, 1}, .padding = Padding::sides(1, 0)}},
      {", uneven padding",
       {1, 4, 5, 3, 2},
       {2, 2, 2, 3, 2},
       {.stride = {1, 2, 1}, .padding = Padding::sides({0, 1, 2}, {2, 0, 1})}},
      {", negative padding", {1, 6, 5, 5, 2}, {2, 2, 2, 2, 2}, {.padding = Padding::sides({-1, 1, 0}, {0, -1, -2})}},
      {", groups", {2, 3, 3, 4, 4}, {6, 2, 2, 2, 2}, {.stride = {1, 1, 2}, .padding = Padding::sides(0, 1), .groups = 2}},
      {", one channel per group", {1, 1, 4, 4, 3}, {3, 1, 3, 3, 1}, {.padding = {0, 1, 1}, .groups = 3}},
      {", two dimensions", {2, 1, 5, 4, 2}, {3, 1, 3, 2, 2}, {.stride = {1, 2, 1}}},
      {", one dimension", {2, 1, 1, 7, 2}, {3, 1, 1, 3, 2}, {.padding = Padding::sides({0, 0, 2}, 0)}},
      {", inputs that no window reads", {1, 5, 4, 4, 1}, {2, 1, 1, 1, 1}, {.stride = {3, 2, 2}}},
  };
  std::vector<Row> rows;
  for (const auto& one : cases) {
    const auto a = one.a;
    const auto extent = Extent3{one.x[1], one.x[2], one.x[3]}, kernel = Extent3{one.w[1], one.w[2], one.w[3]};
    Extent3 out{};
    for (std::size_t i = 0; i < 3; ++i)
      out[i] = window_outputs(extent[i], kernel[i], a.stride[i], a.dilation[i], a.padding.low[i], a.padding.high[i]);
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
    rows.push_back(
        {"conv_bias_activation" + text, {{one.x, 0.2, 1}, {one.w, 0.2, 1}, {bias, 3, 4}}, [a](const Tensors& x) -> Tensors {
           return {local::conv_bias_activation(x[0], x[1], x[2], Activation::leaky_relu(0.1), a)};
         }});
  }
  const Shape x{1, 3, 3, 4, 4}, w{4, 2, 2, 3, 2};
  rows.push_back({"conv_bias_activation without activation",
                  {{x}, {{2, 2, 2, 3, 4}}, {{2}}},
                  F(local::conv_bias_activation(x[0], x[1], x[2], Activation::none))});
  rows.push_back({"conv_bias_activation without bias",
                  {{x, 0.2, 1}, {{2, 2, 2, 3, 4}, -1, -0.2}},
                  F(local::conv_bias_activation(x[0], x[1], {}, Activation::leaky_relu(0.3)))});
  using enum PaddingMode;
  const auto modes = Padding::sides(1, {2, 1, 0}, {circular, reflect, replicate}, {reflect, zeros, circular});
  rows.push_back({"conv, padding modes", {{{1, 4, 3, 4, 2}}, {{2, 2, 2, 3, 2}}}, [modes](const Tensors& t) -> Tensors {
                    return {local::conv(t[0], t[1], {.stride = {1, 2, 1}, .padding = modes})};
                  }});
  rows.push_back({"conv_bias_activation, padding modes",
                  {{{1, 4, 3, 4, 2}, 0.2, 1}, {{2, 2, 2, 3, 2}, 0.2, 1}, {{2}, 3, 4}},
                  [modes](const Tensors& t) -> Tensors {
                    return {local::conv_bias_activation(t[0], t[1], t[2], Activation::leaky_relu(0.1), {.padding = modes})};
                  }});
  rows.push_back({"conv_transpose, padding modes", {{x}, {w}}, [modes](const Tensors& t) -> Tensors {
                    return {local::conv_transpose(t[0], t[1], {.stride = {2, 1, 2}, .padding = modes, .groups = 2})};
                  }});
  rows.push_back({"conv_transpose", {{x}, {w}}, F(local::conv_transpose(x[0], x[1], {.stride = 2}))});
  rows.push_back({"conv_transpose, padding and output padding",
                  {{x}, {w}},
                  F(local::conv_transpose(
                      x[0], x[1], {.stride = {2, 3, 1}, .padding = Padding::sides({1, 0, 1}, 1), .output_padding = {1, 2, 0}}))});
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
      {", padded", {1, 4, 5, 4, 2}, {.kernel = 3, .stride = 2, .padding = Padding::sides(1, {1, 0, 1})}},
      {", padding not counted",
       {1, 4, 5, 4, 2},
       {.kernel = 3, .stride = 2, .padding = Padding::sides(1, {1, 0, 1}), .count_include_pad = false}},
      {", ceil mode",
       {1, 5, 6, 4, 2},
       {.kernel = 2, .stride = {2, 4, 3}, .padding = Padding::sides(0, {0, 0, 1}), .ceil_mode = true}},
      {", ceil mode, padding not counted",
       {1, 5, 6, 4, 2},
       {.kernel = 3, .stride = 2, .padding = Padding::sides(1, 0), .ceil_mode = true, .count_include_pad = false}},
      {", dilated",
       {1, 6, 5, 4, 2},
       {.kernel = {2, 3, 2}, .stride = {2, 1, 1}, .dilation = {3, 2, 1}, .padding = Padding::sides({0, 1, 1}, 0)}},
      {", all", {2, 3, 2, 3, 2}, {.kernel = {3, 2, 3}}},
      {", padding modes",
       {1, 4, 3, 4, 2},
       {.kernel = 3, .stride = 2, .padding = Padding::sides(1, {2, 1, 0}, PaddingMode::circular, PaddingMode::reflect)}},
  };
  std::vector<Row> rows;
  for (const auto& one : cases) {
    const auto a = one.a;
    rows.push_back({std::string("avg_pool") + one.text,
                    {{one.x}},
                    [a](const Tensors& x) -> Tensors { return {local::avg_pool(x[0], a)}; },
                    true});
    rows.push_back({std::string("leaky_avg_pool") + one.text, {apart(one.x)}, [a](const Tensors& x) -> Tensors {
                      return {local::activated_avg_pool(x[0], Activation::leaky_relu(0.3), a)};
                    }});
    rows.push_back({std::string("max_pool") + one.text, {apart(one.x, -2, 2)}, [a](const Tensors& x) -> Tensors {
                      return {local::max_pool(x[0], a)};
                    }});
    rows.push_back({std::string("max_pool of a square") + one.text, {apart(one.x, 1, 6)}, [a](const Tensors& x) -> Tensors {
                      return {local::max_pool(square(x[0]), a)};
                    }});
  }
  rows.push_back({"adaptive_avg_pool", {{{2, 5, 4, 3, 2}}}, F(adaptive_avg_pool(x[0], {3, 2, 4})), true});
  rows.push_back({"adaptive_max_pool", {apart({2, 5, 4, 3, 2})}, F(square(adaptive_max_pool(x[0], {3, 2, 4})))});
  rows.push_back({"adaptive_max_pool, equal windows", {apart({1, 6, 4, 3, 2})}, F(adaptive_max_pool(x[0], {3, 2, 3}))});
  rows.push_back({"leaky_avg_pool, 19 channels",
                  {apart({1, 2, 4, 2, 19})},
                  F(local::activated_avg_pool(x[0], Activation::leaky_relu(0.1), {.kernel = 2}))});
  rows.push_back({"leaky_avg_pool, 16 channels",
                  {apart({2, 2, 2, 3, 16})},
                  F(local::activated_avg_pool(x[0], Activation::relu, {.kernel = 2}))});
  return rows;
}

std::vector<Row> normalisation_and_loss_rows() {
  const Shape s{2, 3, 4};
  const TensorFunction nested = F(recompute([p = x[1]](const Tensor& z) { return tanh(matmul(z, p)) * sum(p); }, x[0]));
  const auto named = [] { return from_vector({2, 3}, {3, 0, 3, 1, 0, 3}, DType::int64); };
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
       F(channel_affine(x[0], wide(x[1]), wide(x[2]), wide(x[3]), Activation::leaky_relu(0.2))),
       false,
       1e-3},
      {"bias_activation",
       {apart(s), {{4}, -0.01, 0.01}},
       F(local::bias_activation(x[0], x[1], Activation::leaky_relu(0.2))),
       false,
       1e-3},
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
      {"layer_norm", {{s}, {{4}}, {{4}}}, F(layer_norm(x[0], wide(x[1]), wide(x[2]), 1e-2))},
      {"rms_norm", {{s}, {{4}}}, F(rms_norm(x[0], wide(x[1]), 1e-2))},
      {"embedding", {{{4, 3}}}, [named](const Tensors& x) -> Tensors { return {square(embedding(named(), x[0]))}; }},
      {"conv2d",
       {{{2, 4, 5, 4}}, {{6, 2, 3, 2}}, {{6}}},
       F(conv2d(x[0], x[1], x[2], {.stride = {1, 2}, .dilation = {2, 1}, .padding = Padding2d::sides({1, 0}, 1), .groups = 2}))},
      {"conv1d",
       {{{2, 7, 3}}, {{2, 3, 3}}, {{2}}},
       F(conv1d(x[0], x[1], x[2], {.stride = 2, .padding = Padding1d::sides(2, 0)}))},
      {"huber", {apart(s), {s, -0.005, 0.005}}, F(huber(x[0], x[1], {.delta = 0.5}))},
      {"kl_divergence", {{s, -3, 0}, {s, 0.1, 1}}, F(kl_divergence(x[0], x[1]))},
      {"kl_divergence of log-probabilities",
       {{s, -3, 0}, {s, -3, 0}},
       F(kl_divergence(x[0], x[1], {.log_target = true, .reduction = Reduction::none}))},
      {"cosine_similarity", {{s}, {{3, 4}}}, F(cosine_similarity(x[0], x[1]))},
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

}  // namespace mpigrad::testing
