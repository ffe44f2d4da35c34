#include "comm/distributed/local_parts.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "comm/collectives/collectives.h"
#include "comm/distributed/invariant.h"
#include "comm/distributed/redistribute.h"
#include "framework/engine/tape.h"
#include "ops/conv/conv.h"
#include "ops/recompute.h"

namespace mpigrad::spatial {

const std::vector<std::int64_t>* cuts_of(const Layout& layout, std::size_t i) {
  const int axis = layout.axis_of(static_cast<int>(i) + 1);
  return axis < 0 ? nullptr : &layout.axes[static_cast<std::size_t>(axis)].cuts;
}

WindowedPlan windowed_plan(const Layout& layout, const Extent3& extents, std::int64_t channels,
                           const std::array<SplitDimension, 3>& along) {
  WindowedPlan result;
  Layout out = layout;
  for (std::size_t i = 0; i < 3; ++i) out.global[static_cast<int>(i) + 1] = extents[i];
  if (layout.has(Placement::partial))
    fail("[window] of a partial sum; make it whole with redistribute() first: {}", to_string(layout));
  if (!(layout.axis_of(4) < 0 || channels == layout.global[4]))
    fail("[window] the number of channels, which are split, changes to {}: {}", channels, to_string(layout));
  out.global[4] = channels;

  const auto coordinates = layout.grid->coordinates(layout.grid->rank);
  for (std::size_t a = 0; a < layout.axes.size(); ++a) {
    const auto& axis = layout.axes[a];
    if (axis.placement != Placement::split || axis.dimension < 1 || axis.dimension > 3) continue;
    const auto i = static_cast<std::size_t>(axis.dimension - 1);
    out.axes[a].cuts = along[i].cuts;
    result.split[i] = true;
    result.part[i] = along[i].parts[static_cast<std::size_t>(coordinates[a])];
    result.axes.push_back(static_cast<int>(a));
  }
  result.out = std::make_shared<Layout>(std::move(out));
  if (result.axes.empty()) return result;

  const auto& grid = grid_of(layout);
  result.group = grid.along(result.axes);
  auto boxes = std::make_shared<RankBoxes>();
  boxes->have = boxes->need = layout.box(grid.rank);
  for (const int a : result.axes) {
    const auto& axis = layout.axes[static_cast<std::size_t>(a)];
    const auto& parts = along[static_cast<std::size_t>(axis.dimension - 1)].parts;
    auto &have = result.have.emplace_back(AxisBlocks{axis.dimension, {}}), &need = result.need.emplace_back(have);
    for (std::size_t at = 0; at < parts.size(); ++at) {
      have.ranges.push_back({axis.cuts[at], axis.cuts[at + 1]});
      need.ranges.push_back({parts[at].begin, parts[at].end});
    }
    result.moves = result.moves || have.ranges != need.ranges;
    const auto& mine = need.ranges[static_cast<std::size_t>(coordinates[static_cast<std::size_t>(a)])];
    boxes->need.begin[axis.dimension] = mine.begin, boxes->need.end[axis.dimension] = mine.end;
  }
  // The ranks of the group are in the order of Grid::members.
  boxes->sent = parts_of(boxes->have, result.need);
  boxes->received = parts_of(boxes->need, result.have);
  result.boxes = std::move(boxes);
  return result;
}

WindowedPlan windowed_plan(const Layout& layout, const VolumeWindow& window, std::int64_t channels) {
  std::array<SplitDimension, 3> along;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto* cuts = cuts_of(layout, i);
    if (!cuts) continue;
    const auto w = window.along(i);
    const auto out = window.transposed ? centred_cuts_transposed(w, window.out[i], *cuts) : centred_cuts(w, window.out[i], *cuts);
    along[i] = {out, window.transposed ? window_parts_transposed(w, *cuts, out) : window_parts(w, *cuts, out)};
  }
  return windowed_plan(layout, window.out, channels, along);
}

Extent3 global_spatial(const Tensor& x) {
  require(x.rank() == 5, "[window] needs [N, D, H, W, C]: {}", x);
  const auto& shape = global_shape(x);
  return {shape[1], shape[2], shape[3]};
}

// The first spatial dimension that the plan splits, or -1: outputs are allocated with room for halos there.
int halo_dimension(const WindowedPlan& plan) {
  for (std::size_t i = 0; i < 3; ++i)
    if (plan.split[i]) return static_cast<int>(i) + 1;
  return -1;
}

int halo_dimension(const Layout& layout) {
  for (int d = 1; d + 1 < layout.global.rank(); ++d)
    if (layout.axis_of(d) >= 0) return d;
  return -1;
}

bool is_stored(const Tensor& x, const Tensor& w) {
  return w && x.layout() && w.layout() && w.layout()->grid != x.layout()->grid && w.layout()->has(Placement::split);
}

namespace {

class Arriving final : public Storage::Arrival {
 public:
  explicit Arriving(GridShape::Wait wait) : wait_(std::move(wait)) {}
  void finish(std::byte* /* data */) override {
    const std::scoped_lock lock(mutex_);
    if (wait_) std::exchange(wait_, nullptr)();
  }

 private:
  std::mutex mutex_;
  GridShape::Wait wait_;
};

}  // namespace

StoredWeights::Weight StoredWeights::describe(const Tensor& w) {
  const auto& layout = *w.layout();
  Weight weight{w.id(), w.type(), w.storage(), w.offset(), layout.global, {}};
  const auto& cuts = layout.axes[0].cuts;
  const auto row = layout.global.elements(1, layout.global.rank());
  for (std::size_t r = 1; r < cuts.size(); ++r) weight.counts.push_back((cuts[r] - cuts[r - 1]) * row);
  return weight;
}

void StoredWeights::begin_next(const Tensor& w, Tape& tape) const {
  // In a replay, and where recompute() runs its function, the order is another one. GPUs order gathers by streams. In shared
  // memory a rank's core copies the elements itself, and a gather that is waited for at once is faster: 80 for 84 ms, CosmoFlow
  // 64^3.
  const auto& ranks = world().transport();
  if (w.device() == DeviceKind::cuda || ranks.node_size() == ranks.size() || Tape::replaying() || detail::Arrival::inside())
    return;
  const auto step = Tape::outermost_number();
  if (std::exchange(expected_, 0) != w.id()) after_.erase(last_);  // the order of the first step holds no longer
  if (last_ != 0 && step_ == step) after_.try_emplace(last_, describe(w));
  last_ = w.id(), step_ = step;
  const auto next = after_.find(w.id());
  if (next == after_.end()) return;
  const auto& weight = next->second;
  const auto storage = weight.storage.lock();
  if (!storage) return void(after_.erase(next));
  expected_ = weight.id;
  (void)tape.memoised(weight.id, this, [&] {
    const Tensor rows(weight.rows, storage, weight.offset), memory({weight.whole, weight.rows.dtype}, rows.device());
    // Storage of its own, so that the arrival, which keeps `memory`, does not keep itself: if nothing reads the weight, it is
    // waited for when the tape ends.
    const auto arriving = std::make_shared<Storage>(memory.storage(), 0, memory.storage()->bytes());
    arriving->await(std::make_shared<Arriving>(start_gather(rows, memory, weight.counts)));
    return Tensor(memory.type(), arriving);
  });
}

Tensor StoredWeights::begun(const Tensor& w, Tape& tape) const {
  return tape.memoised(w.id(), this, [] { return Tensor(); });
}

namespace {

// All of a weight that is stored in parts. Where x varies along all grid axes, the gather's adjoint adds up the cotangents of all
// ranks and leaves each rank its part. Otherwise the cotangents are summed over the axes along which x varies, and then cut.
Tensor gathered_for(const Tensor& x, const Tensor& w) {
  const auto& from = *w.layout();
  const auto& ranks = x.layout()->grid->extents;
  const auto varying = x.layout()->varying_axes(), split = from.varying_axes();
  require(split.size() == 1 && from.grid->ranks() == x.layout()->grid->ranks(),
          "[replicate] a stored weight must be cut along one axis of a grid of the input's ranks: {} with {}", w, x);
  const auto& axis = from.axes[static_cast<std::size_t>(split[0])];
  const auto group = grid_of(from).along(split);
  bool everywhere = group.size() == x.layout()->grid->ranks();
  for (std::size_t a = 0; a < ranks.size(); ++a)
    everywhere = everywhere && (ranks[a] == 1 || std::find(varying.begin(), varying.end(), static_cast<int>(a)) != varying.end());
  auto* tape = Tape::innermost();
  const auto make = [&] {
    if (!everywhere) return gather_all(w).without_layout();
    Rows rows;
    for (std::size_t r = 1; r < axis.cuts.size(); ++r) rows.push_back(axis.cuts[r] - axis.cuts[r - 1]);
    if (axis.dimension != 0 || from.grid->axes() != 1) return allgather(w.without_layout(), group, rows, axis.dimension);
    const auto* stored = dynamic_cast<const StoredWeights*>(from.grid.get());
    ops::GatherStored gather{group, rows, w.layout()};
    if (tape && stored) gather.begun = stored->begun(w, *tape);
    auto all = mpigrad::apply(gather, {w.without_layout()});
    if (tape && stored) stored->begin_next(w, *tape);
    return all;
  };
  const auto whole = tape ? tape->memoised(w.id(), group.key(), make) : make();
  return everywhere || varying.empty() ? whole : replicate(whole, grid_of(*x.layout()).along(varying));
}

}  // namespace

Tensor replicated_for(const Tensor& x, const Tensor& w) {
  if (!w) return w;
  if (!x.layout()) {
    require(!w.layout() || !w.layout()->has(Placement::split),
            "[replicate] a weight that is stored in parts needs an input with a layout: {} with {}", w, x);
    return w;
  }
  if (is_stored(x, w)) return gathered_for(x, w);
  if (w.layout()) require(w.layout()->varying_axes().empty(), "[replicate] a parameter has to be replicated: {}", w);
  const auto axes = x.layout()->varying_axes();
  return axes.empty() ? w.without_layout() : replicate(w, grid_of(*x.layout()).along(axes));
}

}  // namespace mpigrad::spatial
