#include "comm/halos/exchange.h"

#include <algorithm>
#include <optional>

#include "framework/cuda/cuda.h"
#include "framework/tensor/boxes.h"
#include "ops/recompute.h"

namespace mpigrad {

using detail::BoxRegion, detail::pack_box, detail::unpack_box;

namespace {

std::vector<BoxPart> parts(const std::vector<Box>& others, const Box& mine) {
  std::vector<BoxPart> result;
  if (mine.elements() == 0) return result;
  for (std::size_t q = 0; q < others.size(); ++q) {
    // Most pairs do not touch; test this before making a box.
    bool apart = false;
    for (int d = 0; d < mine.begin.rank() && !apart; ++d)
      apart = others[q].end[d] <= mine.begin[d] || mine.end[d] <= others[q].begin[d] || others[q].end[d] <= others[q].begin[d];
    if (!apart) result.push_back({static_cast<int>(q), intersection(mine, others[q])});
  }
  return result;
}

// Error: two of the parts overlap. Counting elements is not enough: overlapping parts could hide missing ones.
void require_apart(std::vector<BoxPart> parts, const Box& need) {
  // Parts whose ranges along the first dimension do not meet are not compared, since a rank may receive from all others.
  const auto begin = [](const BoxPart& part) { return part.box.begin.rank() > 0 ? part.box.begin[0] : 0; };
  std::stable_sort(parts.begin(), parts.end(), [&](const auto& a, const auto& b) { return begin(a) < begin(b); });
  std::vector<const BoxPart*> before;
  for (const auto& part : parts) {
    if (part.box.begin.rank() > 0) std::erase_if(before, [&](const auto* p) { return p->box.end[0] <= part.box.begin[0]; });
    for (const auto* other : before)
      if (intersection(part.box, other->box).elements() != 0)
        fail("[exchange] ranks {} and {} both have part of box {}", std::min(other->peer, part.peer),
             std::max(other->peer, part.peer), to_string(need));
    before.push_back(&part);
  }
}

// True if the received parts, which do not overlap, cover the box.
bool covers(const std::vector<BoxPart>& received, const Box& box) {
  std::int64_t sum = 0;
  for (const auto& part : received) sum += part.box.elements();
  return sum == box.elements();
}

TensorType covering(std::string_view op, const Tensor& x, const Box& has, const Box& gets) {
  if (x.shape() != has.extents()) fail("[{}] the plan says this rank has box {}: {}", op, to_string(has), x);
  return {gets.extents(), x.dtype()};
}

// The offset in bytes of a tensor that covers `gets` from x, which covers `has` in the same memory. None unless the two boxes
// differ in one dimension only and have extent 1 in all dimensions before it.
std::optional<std::int64_t> offset_in_memory(const Tensor& x, const Box& has, const Box& gets) {
  int d = 0;
  while (d < x.rank() && has.begin[d] == gets.begin[d] && has.end[d] == gets.end[d]) ++d;
  for (int e = d + 1; e < x.rank(); ++e)
    if (has.begin[e] != gets.begin[e] || has.end[e] != gets.end[e]) return {};
  if (d == x.rank()) return 0;
  if (x.elements() == 0 || gets.elements() == 0 || x.shape().elements(0, d) != 1) return {};
  return (gets.begin[d] - has.begin[d]) * x.shape().elements(d + 1, x.rank()) * size_of(x.dtype());
}

// A tensor that covers `gets` around x, in the room of x's storage, which it claims; an empty tensor if that is not possible.
Tensor around(const Tensor& x, const Box& has, const Box& gets) {
  const auto offset = offset_in_memory(x, has, gets);
  auto& storage = *x.storage();
  if (!offset || x.offset() != storage.room() || x.bytes() + 2 * storage.room() != storage.bytes()) return {};
  const TensorType type{gets.extents(), x.dtype()};
  const auto begin = x.offset() + *offset, end = begin + type.shape.elements() * size_of(x.dtype());
  if (begin < 0 || end > storage.bytes() || !storage.claim_room()) return {};
  return {type, x.storage(), begin};
}

// The part `gets` of x, sharing its memory; an empty tensor if it is not a part or not contiguous.
Tensor inside(const Tensor& x, const Box& has, const Box& gets) {
  const auto offset = offset_in_memory(x, has, gets);
  const TensorType type{gets.extents(), x.dtype()};
  if (!offset || *offset < 0 || *offset + type.shape.elements() * size_of(x.dtype()) > x.bytes()) return {};
  return {type, x.storage(), x.offset() + *offset};
}

// Calls f(region, first) for each part that comes from another rank: its region in this rank's needed box, and the index of its
// first element among the elements of all these parts. Returns their number of elements.
template <class F>
std::int64_t for_arriving(const Communicator& comm, const RankBoxes& boxes, const F& f) {
  std::int64_t first = 0;
  for (const auto& part : boxes.received) {
    if (part.peer == comm.rank()) continue;
    f(BoxRegion(boxes.need, part.box), first);
    first += part.box.elements();
  }
  return first;
}

// The elements in y that came from other ranks, packed.
Tensor arrived_in(const Tensor& y, const Communicator& comm, const RankBoxes& boxes) {
  const auto elements = for_arriving(comm, boxes, [](const BoxRegion&, std::int64_t) {});
  Tensor packed(TensorType{Shape{elements}, y.dtype()}, y.device());
  if (y.raw())
    for_arriving(comm, boxes, [&](const BoxRegion& region, std::int64_t first) {
      pack_box(region, y, packed.raw() + first * size_of(y.dtype()));
    });
  return packed;
}

// The result of move_boxes() if the elements from other ranks are known already, as `packed`.
void place_arrived(const Tensor& packed, const Communicator& comm, const RankBoxes& boxes, const Tensor& x, Tensor& y) {
  if (!y.raw()) return;
  const auto &have = boxes.have, &need = boxes.need;
  if (x.storage() != y.storage()) {
    if (!covers(boxes.received, need)) detail::zero_bytes(y.device(), y.raw(), y.bytes());
    if (const auto own = intersection(have, need); own.elements() > 0) copy_box(x, have, y, need, own);
  }
  for_arriving(comm, boxes, [&](const BoxRegion& region, std::int64_t first) {
    unpack_box(region, y, packed.raw() + first * size_of(y.dtype()), false);
  });
}

}  // namespace

RankBoxes boxes_of(const BoxPlan& plan, int rank) {
  const auto &have = plan.have[static_cast<std::size_t>(rank)], &need = plan.need[static_cast<std::size_t>(rank)];
  return {have, need, parts(plan.need, have), parts(plan.have, need)};
}

std::vector<BoxPart> parts_of(const Box& box, const std::vector<AxisBlocks>& axes) {
  std::vector<BoxPart> result;
  if (box.elements() > 0) result.push_back({0, box});
  for (const auto& [dimension, ranges] : axes) {
    std::vector<BoxPart> more;
    for (const auto& part : result)
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        auto range = ranges[i];
        if (dimension >= 0) range = {std::max(range.begin, box.begin[dimension]), std::min(range.end, box.end[dimension])};
        if (range.size() == 0) continue;
        auto& made = more.emplace_back(part);
        made.peer = part.peer * static_cast<int>(ranges.size()) + static_cast<int>(i);
        if (dimension >= 0) made.box.begin[dimension] = range.begin, made.box.end[dimension] = range.end;
      }
    result = std::move(more);
  }
  return result;
}

void copy_box(const Tensor& from, const Box& from_box, Tensor& to, const Box& to_box, const Box& part) {
  const BoxRegion source(from_box, part), target(to_box, part);
  const auto item = size_of(from.dtype());
  if (source.contiguous) return unpack_box(target, to, from.raw() + source.offset * item, false);
  if (target.contiguous) return pack_box(source, from, to.raw() + target.offset * item);
  if (from.device() == DeviceKind::cuda) {
    StridedArrays<2> walk;
    for (int d = 0; d < source.extents.rank(); ++d)
      walk.add(source.extents[d], {target.strides[static_cast<std::size_t>(d)], source.strides[static_cast<std::size_t>(d)]});
    return cuda::copy_strided(to.raw() + target.offset * item, from.raw() + source.offset * item, item, walk,
                              cuda::compute_stream());
  }
  Tensor packed(TensorType{Shape{part.elements()}, from.dtype()}, from.device());
  pack_box(source, from, packed.raw());
  unpack_box(target, to, packed.raw(), false);
}

void move_boxes(const Communicator& comm, const RankBoxes& boxes, const Tensor& from, Tensor& to, bool reverse) {
  const int rank = comm.rank();
  const Box& from_box = reverse ? boxes.need : boxes.have;
  const Box& to_box = reverse ? boxes.have : boxes.need;
  const auto& outgoing = reverse ? boxes.received : boxes.sent;
  const auto& incoming = reverse ? boxes.sent : boxes.received;
  const bool real = to.raw() != nullptr || from.raw() != nullptr;
  const int tag = comm.side().max_tag();  // adjoint messages never have this tag
  const auto item = size_of(from.dtype());

  std::vector<Message> sends, receives;
  std::vector<Tensor> buffers;  // packed parts, alive until the exchange is over
  const BoxPart* own = nullptr;
  for (const auto& part : outgoing) {
    if (part.peer == rank) {
      own = &part;
      continue;
    }
    Message message{part.peer, tag, nullptr, part.box.elements()};
    if (real) {
      const BoxRegion region(from_box, part.box);
      if (region.contiguous) {
        message.data = from.raw() + region.offset * item;
      } else {
        buffers.emplace_back(TensorType{Shape{message.count}, from.dtype()}, from.device());
        pack_box(region, from, buffers.back().raw());
        message.data = buffers.back().raw();
      }
    }
    sends.push_back(message);
  }
  std::vector<const BoxPart*> later;  // received parts to unpack
  for (const auto& part : incoming) {
    if (part.peer == rank) continue;
    Message message{part.peer, tag, nullptr, part.box.elements()};
    if (real) {
      const BoxRegion region(to_box, part.box);
      if (region.contiguous && !reverse) {
        message.data = to.raw() + region.offset * item;
        later.push_back(nullptr);
      } else {
        buffers.emplace_back(TensorType{Shape{message.count}, to.dtype()}, to.device());
        message.data = buffers.back().raw();
        later.push_back(&part);
      }
    }
    receives.push_back(message);
  }

  // Elements that no rank sends are 0; in reverse, elements that no rank needed. Must come before receives that may write in
  // place.
  if (real && to.bytes() && !(reverse ? own && own->box == to_box : covers(incoming, to_box)))
    detail::zero_bytes(to.device(), to.raw(), to.bytes());
  Pending pending;
  const bool silent = sends.empty() && receives.empty() && from.device() != DeviceKind::cuda;  // a round on GPUs needs all ranks
  if (comm.moves(from) && !silent) pending = comm.side(from.device()).start_round(sends, receives, from.dtype());
  if (real && own && from.storage() != to.storage()) copy_box(from, from_box, to, to_box, own->box);  // while messages travel
  pending.wait();
  if (real)
    for (std::size_t i = 0; i < receives.size(); ++i)
      if (later[i]) unpack_box(BoxRegion(to_box, later[i]->box), to, static_cast<const std::byte*>(receives[i].data), reverse);
}

namespace ops {

Types Exchange::infer(Inputs in) const { return {covering(traits().name, in[0], boxes->have, boxes->need)}; }
Tensor Exchange::view(Inputs in) const {
  const auto type = infer(in)[0];
  Tensor out;
  if (covers(boxes->received, boxes->need)) out = around(in[0], boxes->have, boxes->need);
  if (!out) out = Tensor::where(in[0], type);
  const auto arrival = detail::Arrival::next();
  if (arrival.known()) {
    place_arrived(arrival.known(), comm, *boxes, in[0], out);
    return out;
  }
  move_boxes(comm, *boxes, in[0], out, false);
  if (arrival.wanted()) arrival.keep(arrived_in(out, comm, *boxes));
  return out;
}
Tensors Exchange::vjp(const Replay&, Inputs g) const {
  const bool consume = sole_owner(g[0]);
  return {mpigrad::apply(ReturnBoxes{comm, boxes, consume}, {g[0]})};
}

Types ReturnBoxes::infer(Inputs in) const { return {covering(traits().name, in[0], boxes->need, boxes->have)}; }
Tensor ReturnBoxes::view(Inputs in) const {
  const auto type = infer(in)[0];
  Tensor out;
  if (consume) out = inside(in[0], boxes->need, boxes->have);
  if (!out) out = Tensor::where(in[0], type);
  move_boxes(comm, *boxes, in[0], out, true);
  return out;
}
Tensors ReturnBoxes::vjp(const Replay&, Inputs g) const { return {mpigrad::apply(Exchange{comm, boxes}, {g[0]})}; }

}  // namespace ops

Tensor exchange(const Tensor& x, const Communicator& comm, const BoxPlanPtr& plan) {
  require(plan != nullptr, "[exchange] needs a plan");
  require(static_cast<int>(plan->have.size()) == comm.size() && plan->need.size() == plan->have.size(),
          "[exchange] a plan of {} and {} boxes for {} ranks", plan->have.size(), plan->need.size(), comm.size());
  auto boxes = std::make_shared<const RankBoxes>(boxes_of(*plan, comm.rank()));
  require_apart(boxes->received, boxes->need);
  return mpigrad::apply(ops::Exchange{comm, std::move(boxes)}, {x});
}

}  // namespace mpigrad
