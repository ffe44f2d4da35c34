#include "ops/elementwise/aligned_operands.h"

#include <memory>
#include <utility>
#include <vector>

#include "framework/engine/parameter.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

bool varies(const Tensor& x, std::size_t axis) { return x.layout() && x.layout()->axes[axis].placement != Placement::replicated; }

// The dimension of w that aligns with the dimension of x split over a grid axis; -1 if w broadcasts there.
int aligned_dimension(const Tensor& w, const Tensor& x, std::size_t axis) {
  const int d = w.rank() + x.layout()->axes[axis].dimension - x.rank();
  return d >= 0 && w.layout()->global[d] != 1 ? d : -1;
}

// This rank's block of w for an op with `others`, replicated over the axes along which they vary and w does not; with its layout.
std::pair<Tensor, LayoutPtr> aligned(std::string_view op, const Tensor& w, Inputs others) {
  Layout block = *w.layout();
  std::vector<int> axes;
  DType dtype = w.dtype();
  for (const auto& x : others)
    if (x.layout() && is_half(x.dtype()) && w.dtype() == DType::float32 && !w.is_constant()) dtype = x.dtype();
  for (std::size_t a = 0; a < block.axes.size(); ++a) {
    if (varies(w, a)) continue;
    for (const auto& x : others) {
      if (!x.layout() || x.layout()->grid != block.grid || !varies(x, a)) continue;
      if (axes.empty() || axes.back() != static_cast<int>(a)) axes.push_back(static_cast<int>(a));
      const auto& at = x.layout()->axes[a];
      const int d = at.placement == Placement::split ? aligned_dimension(w, x, a) : -1;
      if (d < 0 || block.axis_of(d) >= 0) continue;
      require(block.global[d] == x.layout()->global[at.dimension], "[{}] shapes do not fit: {}, {}", op, w, x);
      block.axes[a] = {Placement::split, d, at.cuts};
    }
  }
  Tensor local = w.is_constant() ? w.without_layout() : detail::replicated(w, axes, dtype);
  const auto have = w.layout()->box(), need = block.box();
  if (!(have == need)) {
    Shape begin = need.begin, end = need.end;
    for (int d = 0; d < w.rank(); ++d) begin[d] -= have.begin[d], end[d] -= have.begin[d];
    local = slice(local, begin, end);
  }
  return {local, std::make_shared<Layout>(std::move(block))};
}

}  // namespace

std::optional<AlignedOperands> align_operands(std::string_view op, Inputs in, Elementwise kind) {
  const auto needed = [&](const Tensor& w) {
    if (!w.layout()) return false;
    for (const auto& x : in) {
      if (!x.layout() || x.layout()->grid != w.layout()->grid) continue;
      if (!w.is_constant() && w.dtype() == DType::float32 && is_half(x.dtype()) && x.rank() > 0) return true;
      for (std::size_t a = 0; a < x.layout()->axes.size(); ++a) {
        if (!varies(x, a) || varies(w, a)) continue;
        if (!w.is_constant() || (x.layout()->axes[a].placement == Placement::split && aligned_dimension(w, x, a) >= 0))
          return true;
      }
    }
    return false;
  };
  if (std::count_if(in.begin(), in.end(), [](const Tensor& x) { return x.layout() != nullptr; }) < 2) return std::nullopt;
  if (std::none_of(in.begin(), in.end(), needed)) return std::nullopt;
  AlignedOperands result;
  Tensors described;  // elementwise_layout() accepts a replicated constant, whether it broadcasts or is a block
  for (const auto& x : in) {
    if (!needed(x)) {
      described.push_back(x);
      result.local.push_back(x.without_layout());
      continue;
    }
    const auto [local, layout] = aligned(op, x, in);
    described.push_back(constant(local).with_layout(layout));
    result.local.push_back(local);
  }
  result.layout = elementwise_layout(op, described, kind);
  return result;
}

}  // namespace mpigrad
