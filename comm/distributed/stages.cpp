#include "comm/distributed/stages.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "framework/engine/op.h"
#include "ops/recompute.h"

namespace mpigrad {
namespace {

class StageGrid : public Grid {
 public:
  StageGrid(const Grid& like, const Communicator& world, std::weak_ptr<const Stages> stages)
      : Grid(world, like.names, like.extents, like.overlap()), stages_(std::move(stages)) {}
  void bring_together(std::string_view op, std::vector<Tensor>& operands) const override;
  Tensor brought(const Tensor& x) const override;
  std::shared_ptr<const Stages> stages() const { return stages_.lock(); }

 private:
  std::weak_ptr<const Stages> stages_;
};

void StageGrid::bring_together(std::string_view op, std::vector<Tensor>& operands) const {
  const auto stages = stages_.lock();
  require(stages != nullptr, "[{}] the pipeline of an operand no longer exists", op);
  int last = -1;
  for (const auto& x : operands)
    if (x) last = std::max(last, stages->stage_of(x));
  for (auto& x : operands) {
    if (!x) continue;
    if (stages->stage_of(x) >= 0) {
      x = stages->move(x, last);
      // A constant with the layout of a tensor of another stage, made on this rank, too.
      if (last != stages->mine() && !x.is_stand_in() && x.is_constant()) x = stages->stand_in(x.layout(), x.dtype(), true);
    } else if (last != stages->mine() && !x.is_stand_in()) {
      require(!x.layout() && x.is_constant(),
              "[{}] an operand of stage {} of a pipeline meets a plain tensor that is not constant, and whose gradient only that "
              "stage would have; give it a layout: {}",
              op, last, x);
      x = Tensor::stand_in(x.type()).as_constant();
    }
  }
}

Tensor StageGrid::brought(const Tensor& x) const {
  const auto stages = stages_.lock();
  if (!stages || stages->stage_of(x) < 0) return x;
  return stages->move(x, stages->stage_of(*this));
}

}  // namespace

std::shared_ptr<const Stages> Stages::make(const Communicator& world, int count, const GridExtents& each, Overlap overlap) {
  const int size = ranks_of(each);
  require(count >= 1 && size >= 1 && count * size == world.size(), "[stages] {} stages of {} rank{} on {} rank{}", count, size,
          size == 1 ? "" : "s", world.size(), world.size() == 1 ? "" : "s");
  const std::shared_ptr<Stages> result(new Stages);
  result->mine_ = world.rank() / size;
  const int place = world.rank() % size;
  std::vector<int> own(static_cast<std::size_t>(size)), across(static_cast<std::size_t>(count));
  std::iota(own.begin(), own.end(), result->mine_ * size);
  for (int s = 0; s < count; ++s) across[static_cast<std::size_t>(s)] = s * size + place;
  const auto stage_world = world.subgroup(own);
  result->across_ = world.subgroup(across);
  for (int s = 0; s < count; ++s) {
    // Communicators of other stages are dry; all ranks number theirs alike.
    const auto comm = s == result->mine_ ? stage_world : Communicator(dry_world(place, size, nullptr));
    result->grids_.push_back(std::make_shared<StageGrid>(*make_grid(comm, each, overlap), comm, result));
  }
  auto names = result->grid()->names;
  auto extents = result->grid()->extents;
  names.insert(names.begin(), "stage"), extents.insert(extents.begin(), count);
  result->whole_ = std::make_shared<Grid>(world, std::move(names), std::move(extents), overlap);
  return result;
}

std::shared_ptr<const Stages> Stages::of(const GridShape& grid) {
  const auto* of_stage = dynamic_cast<const StageGrid*>(&grid);
  return of_stage ? of_stage->stages() : nullptr;
}

int Stages::stage_of(const GridShape& grid) const {
  for (std::size_t s = 0; s < grids_.size(); ++s)
    if (grids_[s].get() == &grid) return static_cast<int>(s);
  return -1;
}

Tensor Stages::stand_in(const LayoutPtr& layout, DType dtype, bool constant) const {
  auto x = Tensor::stand_in({layout->box().extents(), dtype});
  if (constant) x = x.as_constant();
  return x.with_layout(layout);
}

namespace {

LayoutPtr on_grid(const GridPtr& grid, Layout layout) {
  layout.grid = grid;
  return std::make_shared<Layout>(std::move(layout));
}

}  // namespace

Tensor Stages::at(int stage, const Tensor& x) const {
  require(stage_of(x) == mine_, "[stages] what all stages have read has a layout on the grid of this rank's stage: {}", x);
  if (stage == mine_) return x;
  return stand_in(on_grid(grids_.at(static_cast<std::size_t>(stage)), *x.layout()), x.dtype(), x.is_constant());
}

// In a dry run a stage lags by as many passes as it is stages away.
bool Stages::is_received(Sent& sent) const {
  return sent.message.test() && (across_.transport().can_ask() || passes_[sent.forward] >= sent.received_in);
}

void Stages::require_same_moves() const {
  if (!across_.transport().can_ask()) return;
  std::int64_t range[] = {moves_, -moves_};
  across_.transport().allreduce(range, range, 2, DType::int64, CombineOp::max);
  require(
      range[0] == -range[1],
      "[pipeline] the stages have moved between {} and {} tensors: something that every stage has made or read is used without "
      "input() or target(), so that each stage takes it for its own",
      -range[1], range[0]);
}

void Stages::poll() const {
  std::erase_if(sent_, [&](Sent& sent) { return is_received(sent); });
}

void Stages::send(const Tensor& x, int to) const {
  if (Tape::recording() && !x.is_constant())
    Tape::record({.name = sends_to_stage,
                  .communicates = true,
                  .inputs = {x},
                  .outputs = {},
                  .vjp = [self = shared_from_this(), type = x.type(), to](const Replay&, Inputs) {
                    return Tensors{self->receive(type, to)};
                  }});
  if (x.elements() == 0 || !across_.moves(x)) return;
  poll();
  // Memory that may be dropped until it is read again (drop_until_read) could be dropped before the message has left.
  auto kept = x.without_layout();
  if (x.storage()->can_drop())
    kept = x.device() == DeviceKind::dry ? Tensor(x.type(), DeviceKind::dry) : detail::copied(kept, x.device());
  const Message message{to, 0, kept.raw(), kept.elements()};
  const bool forward = to > mine_;
  sent_.push_back({kept, across_.transport(kept.device()).start_exchange(std::span(&message, 1), {}, kept.dtype()), forward,
                   passes_[forward] + std::abs(to - mine_)});
  ++traffic_.messages, traffic_.bytes += kept.bytes();
  if (detail::counting_costs()) detail::count_cost(sends_to_stage, {}, 0, {}, {});
}

Tensor Stages::receive(const TensorType& type, int from) const {
  Tensor y(type);
  if (y.elements() > 0 && across_.moves(y)) {
    const double start = detail::counting_costs() ? detail::seconds_now() : 0;
    const Message message{from, 0, y.raw(), y.elements()};
    across_.transport(y.device()).start_exchange({}, std::span(&message, 1), type.dtype).wait();
    if (detail::counting_costs()) detail::count_cost(waits_for_stage, {}, detail::seconds_now() - start, {}, {});
  }
  if (Tape::recording() && is_differentiable(type.dtype))
    Tape::record({.name = "receive from a stage",
                  .communicates = true,
                  .inputs = {},
                  .outputs = {y},
                  .vjp = [self = shared_from_this(), from](const Replay&, Inputs g) {
                    self->send(g[0], from);
                    return Tensors();
                  }});
  return y;
}

Tensor Stages::move(const Tensor& x, int to) const {
  const int from = stage_of(x);
  require(from >= 0 && to >= 0 && to < count(), "[stages] a tensor that belongs to no stage cannot move to stage {} of {}: {}",
          to, count(), x);
  if (from == to) return x;
  require(from < to, "[stages] a tensor of stage {} is used by stage {}, and tensors move to later stages only: {}", from, to, x);
  require(!detail::Arrival::inside() || !Tape::recording(),
          "[recompute] a function that is recomputed uses a tensor of stage {} in stage {}: pass what it needs as its argument, "
          "moved "
          "to that stage (at_stage_of): {}",
          from, to, x);
  const auto known = moved_.find({x.id(), to});
  if (known != moved_.end()) return known->second;
  ++moves_;
  const auto layout = on_grid(grids_[static_cast<std::size_t>(to)], *x.layout());
  Tensor y;
  if (mine_ != from && mine_ != to) {
    y = stand_in(layout, x.dtype(), x.is_constant());
  } else if (mine_ == from) {
    send(x, to);
    y = stand_in(layout, x.dtype(), x.is_constant());
  } else if (x.is_constant() || !is_differentiable(x.dtype())) {
    const Untaped scope;
    y = receive(x.type(), from).as_constant().with_layout(layout);
  } else {
    y = receive(x.type(), from).with_layout(layout);
  }
  if (remembers_) moved_[{x.id(), to}] = y;
  return y;
}

Tensor Stages::everywhere(const Tensor& x) const {
  const int stage = stage_of(x);
  require(stage >= 0, "[stages] a tensor that belongs to no stage: {}", x);
  const Untaped scope;
  Tensor y = mine_ == stage ? constant(x.without_layout()) : Tensor(x.type()).as_constant();
  across_.transport(y.device()).bcast(y.raw(), y.elements(), y.dtype(), stage);
  return y.with_layout(on_grid(grid(), *x.layout()));
}

std::vector<double> Stages::everywhere(std::vector<double> values, int stage) const {
  across_.transport().bcast(values.data(), static_cast<std::int64_t>(values.size()), DType::float64, stage);
  return values;
}

LayoutPtr Stages::stored(int stage, const Layout& on_stage) const {
  int whole = 0;
  while (whole < on_stage.global.rank() && on_stage.axis_of(whole) >= 0) ++whole;
  require(whole < on_stage.global.rank(),
          "[stages] a tensor that one stage stores needs a dimension, one that no axis of the stage's grid splits: {}",
          to_string(on_stage));
  Layout layout{whole_, on_stage.global, on_stage.axes};
  std::vector<std::int64_t> cuts(static_cast<std::size_t>(count()) + 1, 0);
  std::fill(cuts.begin() + stage + 1, cuts.end(), on_stage.global[whole]);
  layout.axes.insert(layout.axes.begin(), {Placement::split, whole, std::move(cuts)});
  return std::make_shared<Layout>(std::move(layout));
}

LayoutPtr Stages::replicated(int stage, const Shape& global) const {
  return replicated_layout(grids_[static_cast<std::size_t>(stage)], global);
}

}  // namespace mpigrad
