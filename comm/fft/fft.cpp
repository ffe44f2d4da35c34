#include "comm/fft/fft.h"

#include <algorithm>
#include <functional>

#include "ops/complex/complex.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad {
namespace {

bool contains(const std::vector<int>& axes, int d) { return std::find(axes.begin(), axes.end(), d) != axes.end(); }

// The grid axis that splits dimension d over several ranks, or -1.
int split_over(const Layout& layout, int d) {
  const int a = layout.axis_of(d);
  return a >= 0 && layout.axes[static_cast<std::size_t>(a)].cuts.size() > 2 ? a : -1;
}

// True if every rank has the same block in both: they differ along grid axes of one rank only.
bool same_blocks(const Layout& a, const Layout& b) {
  if (a.grid != b.grid || !(a.global == b.global)) return false;
  for (std::size_t i = 0; i < a.axes.size(); ++i)
    if (a.grid->extents[i] > 1 && !(a.axes[i] == b.axes[i])) return false;
  return true;
}

// Transforms x along `order`, axis by axis. `part` transforms along the axes [first, last) of `order`, which are whole.
class Transposing {
 public:
  Transposing(const char* op, std::vector<int> order, LayoutPtr wanted)
      : op_(op), order_(std::move(order)), wanted_(std::move(wanted)) {}

  Tensor run(Tensor x, const std::function<Tensor(const Tensor&, std::size_t first, std::size_t last)>& part) const {
    for (std::size_t done = 0; done < order_.size();) {
      std::size_t end = done;
      while (end < order_.size() && split_over(*x.layout(), order_[end]) < 0) ++end;
      if (end > done) x = part(x, done, end), done = end;
      else x = redistribute(x, moved(x, done));
    }
    if (!wanted_) return x;
    return same_blocks(*x.layout(), *wanted_) ? x.with_layout(wanted_) : redistribute(x, wanted_);
  }

 private:
  // The layout of x in which the grid axis that splits dimension order_[done] splits another one.
  LayoutPtr moved(const Tensor& x, std::size_t done) const {
    Layout layout = *x.layout();
    const int d = order_[done];
    const auto a = static_cast<std::size_t>(split_over(layout, d));
    const int parts = layout.grid->extents[a];
    const int to = free_dimension(x, done, a, parts);
    if (to < 0)
      fail(
          "[{}] dimension {} is split over grid axis {}, and no other dimension is left to split instead; redistribute it to "
          "pencils, with one of the transformed dimensions whole: {}",
          op_, d, layout.grid->names[a], x);
    layout.axes[a] = {Placement::split, to, balanced_cuts(layout.global[to], parts)};
    if (wanted_ && wanted_->grid == layout.grid && wanted_->axes[a].placement == Placement::split &&
        wanted_->axes[a].dimension == to && wanted_->global[to] == layout.global[to])
      layout.axes[a].cuts = wanted_->axes[a].cuts;
    return std::make_shared<Layout>(std::move(layout));
  }

  // Preferred are the dimension that the wanted layout splits, transformed dimensions, the last one first, then the longest
  // dimension that is not to be transformed and has a part for each rank, then the dimension transformed last. If there is none
  // of these, some ranks get no part of the longest dimension. All on one rank is no choice.
  int free_dimension(const Tensor& x, std::size_t done, std::size_t a, int parts) const {
    const Layout& layout = *x.layout();
    const auto is_free = [&](int d) { return layout.axis_of(d) < 0; };
    const auto is_pending = [&](int d) {
      return std::find(order_.begin() + static_cast<std::ptrdiff_t>(done), order_.end(), d) != order_.end();
    };
    if (wanted_ && wanted_->axes[a].placement == Placement::split) {
      const int d = wanted_->axes[a].dimension;
      if (is_free(d) && !is_pending(d)) return d;
    }
    for (std::size_t i = done; i-- > 0;)
      if (is_free(order_[i])) return order_[i];
    int longest = -1;
    for (int d = 0; d < x.rank(); ++d)
      if (is_free(d) && !contains(order_, d) && layout.global[d] > 1 &&
          (longest < 0 || layout.global[d] > layout.global[longest]))
        longest = d;
    if (longest >= 0 && layout.global[longest] >= parts) return longest;
    for (std::size_t i = order_.size(); i-- > done;)
      if (is_free(order_[i])) return order_[i];
    return longest;
  }

  const char* op_;
  std::vector<int> order_;
  LayoutPtr wanted_;
};

std::vector<int> checked_axes(const char* op, const Tensor& x, const std::vector<int>& axes) {
  require(!axes.empty(), "[{}] name the dimensions to transform: {}", op, x);
  std::vector<int> result;
  for (const int axis : axes) {
    result.push_back(checked_dimension(op, axis, x.rank()));
    require(std::count(result.begin(), result.end(), result.back()) == 1, "[{}] dimension {} is named twice: {}", op, axis, x);
    require(x.layout()->global[result.back()] >= 1, "[{}] dimension {} has no elements: {}", op, axis, x);
  }
  return result;
}

double points(const Tensor& x, const std::vector<int>& axes) {
  double result = 1;
  for (const int d : axes) result *= static_cast<double>(x.layout()->global[d]);
  return result;
}

std::vector<int> part_of_order(const std::vector<int>& order, std::size_t first, std::size_t last) {
  return {order.begin() + static_cast<std::ptrdiff_t>(first), order.begin() + static_cast<std::ptrdiff_t>(last)};
}

Tensor complex_transform(const char* op, const Tensor& x, const std::vector<int>& order, bool inverse, double scale,
                         const LayoutPtr& layout) {
  require(real_type(x.dtype()) == DType::float32 || real_type(x.dtype()) == DType::float64,
          "[{}] float32, float64 or a complex type is needed: {}", op, x);
  return Transposing(op, order, layout)
      .run(cast(x, complex_type(x.dtype())), [&](const Tensor& here, std::size_t first, std::size_t last) {
        return apply(
            ops::FourierSum{
                .axes = part_of_order(order, first, last), .inverse = inverse, .scale = last == order.size() ? scale : 1},
            {here});
      });
}

void require_no_layout(const char* op, const Tensor& x, const LayoutPtr& layout) {
  require(!layout, "[{}] a layout is named for a plain tensor: {}", op, x);
}

}  // namespace

Tensor fft(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout) {
  if (!x.layout()) return require_no_layout("fft", x, layout), local::fft(x, axes);
  auto order = checked_axes("fft", x, axes);
  std::reverse(order.begin(), order.end());
  return complex_transform("fft", x, order, false, 1, layout);
}

Tensor ifft(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout) {
  if (!x.layout()) return require_no_layout("ifft", x, layout), local::ifft(x, axes);
  const auto order = checked_axes("ifft", x, axes);
  return complex_transform("ifft", x, order, true, 1 / points(x, order), layout);
}

Tensor rfft(const Tensor& x, const std::vector<int>& axes, const LayoutPtr& layout) {
  if (!x.layout()) return require_no_layout("rfft", x, layout), local::rfft(x, axes);
  auto order = checked_axes("rfft", x, axes);
  std::reverse(order.begin(), order.end());
  return Transposing("rfft", order, layout).run(x, [&](const Tensor& here, std::size_t first, std::size_t last) {
    const auto part = part_of_order(order, first, last);
    return first == 0 ? apply(ops::RealFourierSum{.axes = part}, {here}) : apply(ops::FourierSum{.axes = part}, {here});
  });
}

Tensor irfft(const Tensor& y, const std::vector<int>& axes, std::int64_t extent, const LayoutPtr& layout) {
  if (!y.layout()) return require_no_layout("irfft", y, layout), local::irfft(y, axes, extent);
  const auto order = checked_axes("irfft", y, axes);
  const int halved = order.back();
  require(extent >= 1 && extent / 2 + 1 == y.layout()->global[halved],
          "[irfft] the extent of dimension {} of the result does not fit, {}: {}", halved, extent, y);
  require(is_complex(y.dtype()), "[irfft] complex64 or complex128 is needed: {}", y);
  auto others = order;
  others.pop_back();
  const double scale = 1 / (points(y, others) * static_cast<double>(extent));
  return Transposing("irfft", order, layout).run(y, [&](const Tensor& here, std::size_t first, std::size_t last) {
    const auto part = part_of_order(order, first, last);
    if (last < order.size()) return apply(ops::FourierSum{.axes = part, .inverse = true}, {here});
    return apply(ops::RealFourierInverse{.axes = part, .extent = extent, .scale = scale}, {here});
  });
}

}  // namespace mpigrad
