#include "ops/softmax/softmax.h"

#include <limits>
#include <numeric>

#include "ops/elementwise/elementwise.h"
#include "ops/layout_rules.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/logsumexp.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace ops {

Types Softmax::infer(Inputs in) const {
  require(in[0].rank() >= 1 && is_floating(in[0].dtype()), "[softmax] needs floating-point elements and a dimension: {}", in[0]);
  return {in[0].type()};
}
LayoutPtr Softmax::layout(Inputs in) const {
  return within_axes_layout(traits().name, in[0], std::vector{in[0].rank() - 1}, in[0].shape(), false);
}
Tensors Softmax::vjp(const Replay& at, Inputs g) const {
  const auto& y = at.output(0);
  return {y * (g[0] - sum(g[0] * y, {-1}, true))};
}

Types LogSoftmax::infer(Inputs in) const {
  require(in[0].rank() >= 1 && is_floating(in[0].dtype()), "[log_softmax] needs floating-point elements and a dimension: {}",
          in[0]);
  return {in[0].type()};
}
LayoutPtr LogSoftmax::layout(Inputs in) const {
  return within_axes_layout(traits().name, in[0], std::vector{in[0].rank() - 1}, in[0].shape(), false);
}
Tensors LogSoftmax::vjp(const Replay& at, Inputs g) const { return {g[0] - exp(at.output(0)) * sum(g[0], {-1}, true)}; }

}  // namespace ops

namespace {

template <class Op>
Tensor along(const Tensor& x, int axis) {
  if (x.rank() == 0) return mpigrad::apply(Op{}, {x});  // the op refuses it
  axis = checked_dimension(Op::traits().name.data(), axis, x.rank());
  if (axis == x.rank() - 1) return mpigrad::apply(Op{}, {x});
  if (x.layout())
    within_axes_layout(Op::traits().name, x, std::vector{axis}, x.shape(), false);  // names x's dimension, not the permuted one
  std::vector<int> order(static_cast<std::size_t>(x.rank()));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<std::size_t>(axis)], order.back());
  return permute(mpigrad::apply(Op{}, {permute(x, order)}), order);
}

}  // namespace

Tensor softmax(const Tensor& x, int axis) { return along<ops::Softmax>(x, axis); }
Tensor log_softmax(const Tensor& x, int axis) { return along<ops::LogSoftmax>(x, axis); }

Tensor logsumexp(const Tensor& x, const std::vector<int>& axes, bool keep) {
  if (axes.size() == 1 && !x.layout() && x.rank() > 0 && is_floating(x.dtype()) && !is_half(x.dtype())) {
    const int axis = checked_dimension("logsumexp", axes[0], x.rank());
    const auto y = mpigrad::apply(ops::LogSumExpAlong{axis}, {x});
    return keep ? unsqueeze(y, axis) : y;
  }
  require(is_floating(x.dtype()), "[logsumexp] needs floating-point elements: {}", x);
  for (const int axis : axes) {  // max() would refuse these in its own name
    const int d = checked_dimension("logsumexp", axis, x.rank());
    require(x.dim(d) > 0, "[logsumexp] of nothing, dimension {} is empty: {}", d, x);
    if (x.layout()) reduction_layout("logsumexp", x, std::vector{d}, true, false);
  }
  UseDevice device(x.device());
  const auto number = [&](double value) { return constant(full({}, value, x.dtype())); };
  const auto shift = finite_shift(max(constant(x), axes, true));
  const auto terms = sum(exp(x - shift), axes, true);
  // A sum without terms is 0, and the derivative of its logarithm does not exist.
  const auto nothing = equal(constant(terms), number(0));
  const auto y = log(where(nothing, number(1), terms)) + where(nothing, number(-std::numeric_limits<double>::infinity()), shift);
  return keep ? y : squeeze(y, axes);
}

}  // namespace mpigrad
