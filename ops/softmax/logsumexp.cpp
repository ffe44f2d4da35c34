#include "ops/softmax/logsumexp.h"

#include <limits>

#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace ops {
namespace {

void require_wide(std::string_view op, const Tensor& x) {
  require(is_floating(x.dtype()), "[{}] needs floating-point elements: {}", op, x);
  require(!is_half(x.dtype()), "[{}] has no {} form: cast to float32 first: {}", op, name_of(x.dtype()), x);
}

}  // namespace

Types LogSumExpAlong::infer(Inputs in) const {
  const auto& x = in[0];
  require_wide(traits().name, x);
  require(axis >= 0 && axis < x.rank(), "[logsumexp] along dimension {} of {}", axis, x);
  std::vector<std::int64_t> rest;
  for (int d = 0; d < x.rank(); ++d)
    if (d != axis) rest.push_back(x.dim(d));
  return {{Shape(rest), x.dtype()}};
}

Tensors LogSumExpAlong::vjp(const Replay& at, Inputs g) const {
  UseDevice device(at.input(0).device());
  const auto y = unsqueeze(zero_if_nothing(at.output(0)), axis), ybar = unsqueeze(g[0], axis);
  if (at.input(0).rank() == 2) return {exp_scaled(at.input(0), y, ybar)};
  return {exp(at.input(0) - y) * ybar};
}

Types ExpScaled::infer(Inputs in) const {
  const auto &x = in[0], &a = in[1], &b = in[2];
  const bool fits = x.rank() == 2 && (a.shape() == Shape{x.dim(0), 1} || a.shape() == Shape{1, x.dim(1)});
  require_wide(traits().name, x);
  require(fits && a.type() == b.type() && a.dtype() == x.dtype(),
          "[exp_scaled] shift and scale must be a column or a row for a matrix, of its type: {}, {} and {}", x, a, b);
  return {x.type()};
}

Tensors ExpScaled::vjp(const Replay& at, Inputs g) const {
  const auto &x = at.input(0), &a = at.input(1);
  const int repeated = a.dim(0) == x.dim(0) && a.dim(1) == 1 ? 1 : 0;
  const auto xbar = g[0] * at.output(0);
  Tensors result{xbar, {}, {}};
  if (at.wants(1)) result[1] = -sum(xbar, {repeated}, true);
  if (at.wants(2)) result[2] = sum(g[0] * exp(x - a), {repeated}, true);
  return result;
}

}  // namespace ops

Tensor zero_if_nothing(const Tensor& y) {
  UseDevice device(y.device());
  const auto none = equal(constant(y), constant(full({}, -std::numeric_limits<double>::infinity(), y.dtype())));
  return where(none, constant(zeros_like(y)), y);
}

Tensor finite_shift(const Tensor& maximum) {
  const auto largest = [&]() -> double {
    if (maximum.dtype() == DType::float64) return std::numeric_limits<double>::max();
    if (maximum.dtype() == DType::bfloat16) return BFloat16::from_bits(0x7F7F);
    return maximum.dtype() == DType::float16 ? 65504 : std::numeric_limits<float>::max();
  }();
  return clamp(constant(maximum), -largest, largest);
}

Tensor exp_scaled(const Tensor& x, const Tensor& shift, const Tensor& scale) {
  return mpigrad::apply(ops::ExpScaled{}, {x, shift, scale});
}

}  // namespace mpigrad
