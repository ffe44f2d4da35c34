#include "comm/halos/overlapped.h"

#include <algorithm>
#include <utility>

#include "comm/halos/ghosts.h"
#include "comm/messages/nonblocking.h"
#include "ops/views/pack_boxes.h"
#include "ops/views/views.h"

namespace mpigrad::spatial {
namespace {

Box relative(Box box, const Box& to) {
  for (int d = 0; d < box.begin.rank(); ++d) box.begin[d] -= to.begin[d], box.end[d] -= to.begin[d];
  return box;
}

bool contains(const Box& outer, const Box& inner) { return inner.elements() > 0 && intersection(outer, inner) == inner; }

// All ranks of the group come to the same answer: it depends on all their boxes, and on nothing else that differs.
bool overlaps(const Tensor& x, const WindowedPlan& plan, const Tensor& w) {
  const auto mode = grid_of(*x.layout()).overlap();
  if (!plan.moves || mode == Overlap::never || ghosts_cover(x, plan)) return false;
  std::int64_t smallest = x.layout()->global.elements(), most = 0;
  for (std::size_t r = 0; r < plan.boxes->have.size(); ++r) {
    const auto &have = plan.boxes->have[r], &need = plan.boxes->need[r];
    if (!contains(need, have)) return false;  // windows that skip planes, ranks that have none, or make no outputs
    smallest = std::min(smallest, have.elements());
    most = std::max(most, need.elements() - have.elements());
  }
  if (mode == Overlap::always) return true;
  // 16 bits would be rounded once more at the rim. Thick halos are half of the work, and gradients of many weights, which every
  // slab has, cost more than they hide.
  const auto slabs = 2 * static_cast<std::int64_t>(plan.axes.size());
  return !is_half(x.dtype()) && 4 * most <= smallest && 2 * smallest >= slabs * w.elements();
}

// The outputs, of those in `outputs`, whose windows reach into `part` of the inputs, and the paddings with which a convolution of
// that part makes just them. Everything in global coordinates.
struct PartOfConv {
  Box out;
  ConvAttributes a;
};
PartOfConv part_of_conv(const Box& part, const Box& outputs, const Extent3& kernel, const ConvAttributes& whole, bool all) {
  PartOfConv result{outputs, whole};
  for (std::size_t i = 0; i < 3; ++i) {
    const int d = static_cast<int>(i) + 1;
    const auto s = whole.stride[i], p = whole.padding_low[i], reach = whole.dilation[i] * (kernel[i] - 1);
    auto &first = result.out.begin[d], &last = result.out.end[d];
    if (!all) {
      const auto from = part.begin[d] + p - reach, to = part.end[d] - 1 + p;
      first = std::max(first, from <= 0 ? 0 : (from + s - 1) / s);
      last = std::max(first, std::min(last, to / s + 1));
    }
    const auto before = part.begin[d] - (first * s - p);
    result.a.padding_low[i] = before;
    result.a.padding_high[i] = (last - 1 - first) * s + reach + 1 - (part.end[d] - part.begin[d]) - before;
  }
  return result;
}

// What comes from other ranks: the messages in their order, and how they make up slabs around the block. A slab is what lies
// before, or behind, the block along one grid axis, corners with the first axis that has them; in the order of ranks the
// messages of one slab follow each other.
struct Slab {
  Box box;
  std::vector<Box> parts;  // in the slab's coordinates
  std::int64_t first = 0;  // element of what has arrived
};
struct Halos {
  Topology topology;
  Rows sent_rows, received_rows;
  std::vector<Box> sent;  // in the block's coordinates
  std::vector<Slab> slabs;
};

Halos halos_of(const Tensor& x, const WindowedPlan& plan) {
  Halos result{.topology = {group_of(x, plan.axes), {}, {}}, .sent_rows = {}, .received_rows = {}, .sent = {}, .slabs = {}};
  const int rank = result.topology.comm.rank();
  const auto &have = plan.boxes->have[static_cast<std::size_t>(rank)], &need = plan.boxes->need[static_cast<std::size_t>(rank)];
  for (const auto& part : sent_parts(*plan.boxes, rank)) {
    if (part.peer == rank) continue;
    result.topology.destinations.push_back({part.peer, 0});
    result.sent_rows.push_back(part.box.elements());
    result.sent.push_back(relative(part.box, have));
  }
  Box rest = need;
  for (const int axis : plan.axes) {
    const int d = x.layout()->axes[static_cast<std::size_t>(axis)].dimension;
    Box before = rest, behind = rest;
    before.end[d] = have.begin[d], behind.begin[d] = have.end[d];
    for (auto* box : {&before, &behind})
      if (box->elements() > 0) result.slabs.push_back({.box = *box, .parts = {}, .first = 0});
    rest.begin[d] = have.begin[d], rest.end[d] = have.end[d];
  }
  std::int64_t arrived = 0;
  for (const auto& part : received_parts(*plan.boxes, rank)) {
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

// The slab's elements of what has arrived.
Tensor assembled(const Tensor& arrived, const Slab& slab) {
  std::int64_t elements = 0;
  for (const auto& part : slab.parts) elements += part.elements();
  const auto packed = slice(arrived, 0, slab.first, slab.first + elements);
  const auto shape = slab.box.extents();
  return slab.parts.size() == 1 ? reshape(packed, shape) : boxes_in_zeros(packed, shape, slab.parts);
}

}  // namespace

Tensor windowed_conv(const Tensor& x, const WindowedPlan& plan, const Tensor& w, const Tensor& bias, Activation activation,
                     const ConvAttributes& a, int room) {
  if (!overlaps(x, plan, w)) {
    auto part = a;
    for (std::size_t i = 0; i < 3; ++i)
      if (plan.split[i]) part.padding_low[i] = plan.part[i].pad_low, part.padding_high[i] = plan.part[i].pad_high;
    const auto input = windowed_input(x, plan);
    const HaloRoom scope(room);
    return local::conv_bias_activation(input, w, bias, activation, part);
  }
  const auto halos = halos_of(x, plan);
  const auto kernel = spatial_extent(w);
  const auto have = x.layout()->box();
  Box outputs = plan.out->box();  // of which a pooling may make fewer
  for (std::size_t i = 0; i < 3; ++i) {
    const int d = static_cast<int>(i) + 1;
    outputs.begin[d] = plan.split[i] ? plan.part[i].out_begin : 0;
    outputs.end[d] = plan.split[i]
                         ? plan.part[i].out_end
                         : window_outputs(x.dim(d), kernel[i], a.stride[i], a.dilation[i], a.padding_low[i], a.padding_high[i]);
  }

  const auto sent = with_packed_boxes(x.without_layout(), halos.sent);
  Request request = ineighbor_alltoall(sent.packed, halos.topology, halos.sent_rows, halos.received_rows);
  const bool activates = !activation.is_none();  // of the whole sum
  Tensor y;
  {
    const HaloRoom scope(activates ? -1 : room);
    y = local::conv_bias_activation(sent.x, w, activates ? Tensor() : bias, Activation::none,
                                    part_of_conv(have, outputs, kernel, a, true).a);
  }
  const auto arrived = wait(request);
  for (const auto& slab : halos.slabs) {
    const auto part = part_of_conv(slab.box, outputs, kernel, a, false);
    if (part.out.elements() == 0) continue;
    y = add_boxes(std::move(y), local::conv(assembled(arrived, slab), w, part.a), {relative(part.out, outputs)});
  }
  if (!activates) return y;
  const HaloRoom scope(room);
  return local::bias_activation(y, bias, activation);
}

}  // namespace mpigrad::spatial
