#include "comm/halos/conv_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "comm/halos/ghosts.h"

namespace mpigrad::spatial {
namespace {

VolumeWindow convolution(const Extent3& in, const Extent3& kernel, const ConvAttributes& a) {
  VolumeWindow s{kernel, a.stride, a.dilation, a.padding.low, {}};
  require_window("conv", s.kernel, a.stride, a.dilation);
  for (std::size_t i = 0; i < 3; ++i)
    s.out[i] = window_outputs(in[i], s.kernel[i], s.stride[i], s.dilation[i], a.padding.low[i], a.padding.high[i]);
  return s;
}

// The product of this rank's extents in the dimensions that the plan does not split; they are equal for all ranks of the group.
std::int64_t unsplit_elements(const WindowedPlan& plan) {
  auto extents = plan.boxes->have.extents();
  for (const auto& axis : plan.have) extents[axis.dimension] = 1;
  return extents.elements();
}

// The number of elements that all ranks of a plan receive. A sum over ranks of products is the product of sums along the axes.
std::int64_t received_by_all(const WindowedPlan& plan) {
  if (!plan.moves) return 0;
  std::int64_t needed = unsplit_elements(plan), own = needed;
  for (std::size_t a = 0; a < plan.axes.size(); ++a) {
    std::int64_t of_axis = 0, own_of_axis = 0;
    for (std::size_t i = 0; i < plan.have[a].ranges.size(); ++i) {
      const auto &have = plan.have[a].ranges[i], &need = plan.need[a].ranges[i];
      of_axis += need.size();
      own_of_axis += Range{std::max(have.begin, need.begin), std::min(have.end, need.end)}.size();
    }
    needed *= of_axis, own *= own_of_axis;
  }
  return needed - own;
}

// Ratio of computation and communication: 1 TFLOP/s for each rank, compared with bytes that cross a network at 10 GB/s.
constexpr double flops_for_a_byte = 100;

// Replaces the exchange of `plan` by one for the convolution `s` and the `pool` after it, where that is faster.
void merge_pool(ConvPlan& plan, const VolumeWindow& s, const PoolAttributes& pool, DType dtype) {
  const auto& layout = *plan.product.x;
  const auto& weight = plan.product.weight;
  const auto of_pool = pooling(s.out, pool);
  const auto& first = plan.window;
  if (!first.moves) return;
  const auto second = windowed_plan(*first.out, of_pool, weight[0]);

  // Each rank's windows of the pool, and the windows of the convolution for the places that they read.
  std::array<SplitDimension, 3> along;
  std::array<std::vector<WindowPart>, 3> pooled;
  double redundant = 1, own = 1;  // places that ranks compute, in the split dimensions
  for (std::size_t i = 0; i < 3; ++i) {
    const auto* cuts = cuts_of(layout, i);
    if (!cuts) continue;
    const auto made = centred_cuts(s.along(i), s.out[i], *cuts);
    along[i].cuts = centred_cuts(of_pool.along(i), of_pool.out[i], made);
    pooled[i] = window_parts(of_pool.along(i), made, along[i].cuts);
    std::int64_t places = 0;
    for (const auto& part : pooled[i]) {
      along[i].parts.push_back(window_part(s.along(i), cuts->back(), part.begin, part.end));
      places += part.end - part.begin;
    }
    redundant *= static_cast<double>(places), own *= static_cast<double>(s.out[i]);
  }
  auto both = windowed_plan(layout, of_pool.out, weight[0], along);
  const auto local = first.out->box().extents();
  double others = static_cast<double>(local[0]);  // places in the other dimensions
  for (std::size_t i = 0; i < 3; ++i)
    if (!first.split[i]) others *= static_cast<double>(s.out[i]);
  const auto item = static_cast<double>(size_of(dtype));
  const double saved = item * static_cast<double>(received_by_all(first) + received_by_all(second) - received_by_all(both));
  const double again = 2 * std::max(0.0, redundant - own) * others * static_cast<double>(weight.elements());
  if (saved <= 0 || again > flops_for_a_byte * saved) return;

  std::array<WindowPart, 3> part{};
  Extent3 padded = s.out;  // this rank's places
  const auto coordinates = layout.grid->coordinates(layout.grid->rank);
  for (const int axis : both.axes) {
    const auto a = static_cast<std::size_t>(axis);
    const auto i = static_cast<std::size_t>(layout.axes[a].dimension - 1);
    part[i] = pooled[i][static_cast<std::size_t>(coordinates[a])];
    padded[i] = both.part[i].out_end - both.part[i].out_begin;
  }
  plan.pool = PoolPlan{local_window(padded, *both.out, both.split, part, pool), both.out, s.out};
  plan.window = std::move(both);
}

Box relative(Box box, const Box& to) {
  for (int d = 0; d < box.begin.rank(); ++d) box.begin[d] -= to.begin[d], box.end[d] -= to.begin[d];
  return box;
}

bool contains(const Box& outer, const Box& inner) { return inner.elements() > 0 && intersection(outer, inner) == inner; }

// True if halos are overlapped with the convolution of the block. All ranks of the group get the same result, because it depends
// only on the boxes of all of them.
bool overlaps(const ConvPlan& plan, DType dtype) {
  const auto& layout = *plan.product.x;
  const auto& window = plan.window;
  const auto mode = grid_of(layout).overlap();
  if (!window.moves || mode == Overlap::never) return false;
  // The numbers of elements that ranks have and need, each pair once: ranks differ by a few extents along each axis.
  std::set<std::pair<std::int64_t, std::int64_t>> sizes{{unsplit_elements(window), unsplit_elements(window)}};
  for (std::size_t a = 0; a < window.axes.size(); ++a) {
    std::set<std::pair<std::int64_t, std::int64_t>> along, all;
    for (std::size_t i = 0; i < window.have[a].ranges.size(); ++i) {
      const auto &have = window.have[a].ranges[i], &need = window.need[a].ranges[i];
      // Windows that skip planes, ranks that have none, or make no outputs.
      if (have.size() == 0 || need.begin > have.begin || need.end < have.end) return false;
      along.emplace(have.size(), need.size());
    }
    for (const auto& [have, need] : sizes)
      for (const auto& [own, needed] : along) all.emplace(have * own, need * needed);
    sizes = std::move(all);
  }
  const auto smallest = sizes.begin()->first;
  if (smallest == 0) return false;
  std::int64_t most = 0;
  for (const auto& [have, need] : sizes) most = std::max(most, need - have);
  if (mode == Overlap::always) return true;
  // Overlapping would round 16-bit results once more at the rim. It does not pay for thick halos, which are half of the work, or
  // for many weights, whose gradients every slab computes again and which cost more than the hidden messages.
  const auto slabs = 2 * static_cast<std::int64_t>(window.axes.size());
  return !is_half(dtype) && 4 * most <= smallest && 2 * smallest >= slabs * plan.product.weight.elements();
}

// The outputs among `outputs` whose windows reach into `part` of the inputs, and the paddings with which a convolution of that
// part computes just these. Everything in global coordinates.
struct PartOfConv {
  Box out;
  ConvAttributes a;
};
PartOfConv part_of_conv(const Box& part, const Box& outputs, const Extent3& kernel, const ConvAttributes& whole, bool all) {
  PartOfConv result{outputs, whole};
  for (std::size_t i = 0; i < 3; ++i) {
    const int d = static_cast<int>(i) + 1;
    const auto s = whole.stride[i], p = whole.padding.low[i], reach = whole.dilation[i] * (kernel[i] - 1);
    auto &first = result.out.begin[d], &last = result.out.end[d];
    if (!all) {
      const auto from = part.begin[d] + p - reach, to = part.end[d] - 1 + p;
      first = std::max(first, from <= 0 ? 0 : (from + s - 1) / s);
      last = std::max(first, std::min(last, to / s + 1));
    }
    const auto before = part.begin[d] - (first * s - p);
    result.a.padding.low[i] = before;
    result.a.padding.high[i] = (last - 1 - first) * s + reach + 1 - (part.end[d] - part.begin[d]) - before;
  }
  return result;
}

// The halos received from other ranks, arranged as slabs around the block.
Halos halos_of(const Layout& layout, const WindowedPlan& plan) {
  Halos result{.topology = {plan.group, {}, {}}};
  const int rank = result.topology.comm.rank();
  const auto &have = plan.boxes->have, &need = plan.boxes->need;
  for (const auto& part : plan.boxes->sent) {
    if (part.peer == rank) continue;
    result.topology.destinations.push_back({part.peer, 0});
    result.sent_rows.push_back(part.box.elements());
    result.sent.push_back(relative(part.box, have));
  }
  Box rest = need;
  for (const int axis : plan.axes) {
    const int d = layout.axes[static_cast<std::size_t>(axis)].dimension;
    Box before = rest, behind = rest;
    before.end[d] = have.begin[d], behind.begin[d] = have.end[d];
    for (auto* box : {&before, &behind})
      if (box->elements() > 0) result.slabs.push_back({.box = *box});
    rest.begin[d] = have.begin[d], rest.end[d] = have.end[d];
  }
  std::int64_t arrived = 0;
  for (const auto& part : plan.boxes->received) {
    if (part.peer == rank) continue;
    result.topology.sources.push_back({part.peer, 0});
    result.received_rows.push_back(part.box.elements());
    const auto slab =
        std::find_if(result.slabs.begin(), result.slabs.end(), [&](const Slab& s) { return contains(s.box, part.box); });
    if (slab == result.slabs.end())
      fail("[conv] box {} of rank {} is in no slab around {}", to_string(part.box), part.peer, to_string(have));
    if (slab->parts.empty()) slab->first = arrived;
    slab->parts.push_back(relative(part.box, slab->box));
    arrived += part.box.elements();
  }
  return result;
}

// Plans the convolutions of the block only and of the slabs around it.
void overlap_halos(ConvPlan& plan, const VolumeWindow& s) {
  const auto& window = plan.window;
  const auto have = plan.product.x->box();
  Box outputs = window.out->box();  // those of a pooling, if there is one: spatial extents are replaced below
  for (std::size_t i = 0; i < 3; ++i) {
    const int d = static_cast<int>(i) + 1;
    outputs.begin[d] = window.split[i] ? window.part[i].out_begin : 0;
    outputs.end[d] = window.split[i] ? window.part[i].out_end : s.out[i];
  }
  plan.halos = halos_of(*plan.product.x, window);
  auto& slabs = plan.halos->slabs;
  for (auto& slab : slabs) {
    const auto part = part_of_conv(slab.box, outputs, s.kernel, plan.a, false);
    slab.a = part.a, slab.out = relative(part.out, outputs);
  }
  std::erase_if(slabs, [](const Slab& slab) { return slab.out.elements() == 0; });
  plan.a = part_of_conv(have, outputs, s.kernel, plan.a, true).a;
}

}  // namespace

VolumeWindow pooling(const Extent3& in, const PoolAttributes& a) {
  require_window("pool", a.kernel, a.stride, a.dilation);
  return {a.kernel, a.stride, a.dilation, a.padding.low, pool_outputs(in, a)};
}

ops::Window local_window(const Extent3& padded, const Layout& out, const std::array<bool, 3>& split,
                         const std::array<WindowPart, 3>& part, const PoolAttributes& a) {
  ops::Window window{a.kernel, a.stride, a.dilation, a.padding.low, padded, {}};
  const auto local = out.box().extents();
  for (std::size_t i = 0; i < 3; ++i) {
    window.out[i] = local[static_cast<int>(i) + 1];
    if (split[i]) window.low[i] = part[i].pad_low;
  }
  return window;
}

ConvPlan plan_conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvAttributes& attributes,
                   const SplitOutputs& outputs, const PoolAttributes* pool) {
  require(!adds_copies(attributes.padding), "[conv] a plan has no padding modes: {}", x);  // with_copies() comes first
  ConvPlan plan{.product = plan_product("conv", x, w, bias, {.groups = attributes.groups, .outputs = outputs}), .a = attributes};
  plan.activation = std::exchange(plan.a.activation, Activation::none);
  plan.a.padding = without_copies(attributes.padding);  // paddings of parts are zeros, also where a mode of no elements is not
  plan.a.groups = plan.product.groups;
  const auto& weight = plan.product.weight;
  const Extent3 kernel{weight[1], weight[2], weight[3]};
  const auto in = global_spatial(x);
  require_kernel_fits("conv", in, kernel, plan.a);
  if (!x.layout()) return plan;
  const auto s = convolution(in, kernel, plan.a);
  plan.window = windowed_plan(*plan.product.x, s, weight[0]);
  if (pool && !adds_copies(pool->padding) && weight.rank() == 5 && plan.activation == Activation::none &&
      plan.product.axes.empty())
    merge_pool(plan, s, *pool, x.dtype());
  const auto& product = plan.product;
  const bool moved =
      !product.replicated.empty() || product.gathered >= 0 || product.cut >= 0;  // ghost planes of x are not moved with it
  if ((moved || !ghosts_cover(x, plan.window)) && overlaps(plan, x.dtype())) {
    overlap_halos(plan, s);
  } else {
    for (std::size_t i = 0; i < 3; ++i)
      if (plan.window.split[i])
        plan.a.padding.low[i] = plan.window.part[i].pad_low, plan.a.padding.high[i] = plan.window.part[i].pad_high;
  }
  return plan;
}

}  // namespace mpigrad::spatial
