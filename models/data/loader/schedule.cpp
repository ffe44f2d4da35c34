#include "models/data/loader/schedule.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "framework/base/error.h"

namespace mpigrad::data {

Philox random_of(const LoaderOptions& options, std::int64_t epoch, std::int64_t sample) {
  return Philox{options.seed, static_cast<std::uint64_t>(epoch)}.child(7).child(static_cast<std::uint64_t>(sample));
}

Schedule::Schedule(SourcePtr source, const LoaderOptions& o)
    : source_(std::move(source)), options_(o),
      steps_(*source_, o.samples, o.batch, o.seed, o.shuffle, o.drop_last), kinds_{o.flips, o.shifts, o.transpositions},
      window_(o.crop ? o.crop->extents : source_->extents()) {
  require(window_.rank() == 3 && window_.elements() > 0, "[data] windows must be [D, H, W], at least 1 each: {}", window_);
  require(!o.transpositions || (window_[0] == window_[1] && window_[1] == window_[2]), "[data] transpositions need cubes: {}",
          window_);
  o.augment.require_windows();
  if (o.augment.needs_tones()) tones_.emplace(source_);
  if (!o.crop) require_same_extents(*source_, "batches of whole samples need samples of one size, or a crop");
  require(!o.shifts || (!o.crop && !o.augment.moves()),
          "[data] periodic shifts need whole samples without steps that move cells");

  const auto& target = source_->target_type();
  const auto own = is_floating(target.type) ? o.dtype : target.per_cell ? target.type : DType::int64;
  target_dtype_ = o.target_dtype.value_or(own);
  require(is_floating(target_dtype_) || !is_floating(own),
          "[data] y must be floating-point, not {}: targets are numbers, not classes", name_of(target_dtype_));
  require(is_floating(target_dtype_) || target_dtype_ == own, "[data] y must be {} or floating-point, not {}", name_of(own),
          name_of(target_dtype_));
  if (o.crop && o.crop->foreground != 0) {
    require(o.crop->foreground > 0 && o.crop->foreground <= 1,
            "[data] the fraction of windows with foreground must be from 0 to 1, not {}", o.crop->foreground);
    require(target.per_cell && target.shape.elements() == 1 && !is_floating(target.type),
            "[data] windows with foreground need labels of cells");
    foreground_.emplace(source_);
  }

  block_ = {Shape{0, 0, 0}, window_};
  if (o.grid) {
    const auto& layout = *layouts(o.batch).x;
    const auto box = layout.box();
    require_planes(o.grid, shape(o.batch));
    for (int a = 0; a < 3; ++a) {
      block_.begin[a] = box.begin[a + 1], block_.end[a] = box.end[a + 1];
      if (layout.axis_of(a + 1) >= 0) width_[static_cast<std::size_t>(a)] = o.ghosts;
    }
  }
  require(o.ghosts >= 0, "[data] {} ghost planes cannot be read", o.ghosts);
  spatial_ = with_ghost_planes(block_);
}

Shape Schedule::target_shape(std::int64_t n, const Shape& box) const {
  const auto& t = source_->target_type();
  std::vector<std::int64_t> extents{n};
  if (t.per_cell) extents.insert(extents.end(), box.begin(), box.end());
  const bool one_class = !t.per_cell && t.shape == Shape{1} && !is_floating(target_dtype_);
  if (!one_class) extents.insert(extents.end(), t.shape.begin(), t.shape.end());
  return Shape(extents);
}

// A rank's block with its ghost planes.
Box Schedule::with_ghost_planes(Box block) const {
  for (int a = 0; a < 3; ++a) {
    const auto w = width_[static_cast<std::size_t>(a)];
    block.begin[a] = std::max<std::int64_t>(0, block.begin[a] - w), block.end[a] = std::min(window_[a], block.end[a] + w);
  }
  return block;
}

const Schedule::Layouts& Schedule::layouts(std::int64_t n) {
  auto& found = layouts_[n];
  if (!found.x && options_.grid) {
    found.x = input_layout(options_.grid, shape(n));
    const bool per_cell = source_->target_type().per_cell;
    found.y = split_layout(options_.grid, target_shape(n, window_), {0, per_cell ? 1 : -1, per_cell ? 2 : -1, per_cell ? 3 : -1});
  }
  return found;
}

Fetch::Item Schedule::drawn(std::int64_t epoch, std::int64_t sample) {
  const auto& o = options_;
  Fetch::Item item{.sample = sample, .map = draw_augmentation(o.seed, epoch, sample, window_, kinds_)};
  item.extents = o.crop ? source_->extents_of(sample) : window_;
  if (o.crop) item.begin = draw_window(o.seed, epoch, sample, item.extents, *o.crop, foreground_ ? &*foreground_ : nullptr);
  const auto random = random_of(o, epoch, sample);
  const auto motion = o.augment.motion(window_, random);
  item.reach = o.augment.reach(random);
  for (std::size_t a = 0; a < 3; ++a) item.map.flip[a] = item.map.flip[a] != motion.flip[a];
  if (motion.resamples()) item.deformation.emplace(motion, item.map, item.begin, item.extents);
  return item;
}

Box Schedule::reached(const Fetch::Item& item, Box block) const {
  for (int a = 0; a < 3; ++a) {
    block.begin[a] = std::max<std::int64_t>(0, block.begin[a] - item.reach);
    block.end[a] = std::min(window_[a], block.end[a] + item.reach);
  }
  return block;
}

std::vector<Piece> Schedule::pieces(const Fetch::Item& item, const Box& of) const {
  const auto block = reached(item, of);
  if (!item.deformation) return pieces_in_sample(pieces_of(block, window_, item.map), item.begin, item.extents);
  const auto box = item.deformation->needed(block);
  if (box.elements() == 0) return {};
  return {Piece{.box = box}};
}

std::vector<Piece> Schedule::pieces_of_rank(const Fetch::Item& item, const LayoutPtr& layout, int rank) const {
  if (!layout) return pieces(item, spatial_);
  const auto theirs = layout->box(rank);
  auto reach = spatial_;
  for (int a = 0; a < 3; ++a) reach.begin[a] = theirs.begin[a + 1], reach.end[a] = theirs.end[a + 1];
  return pieces(item, with_ghost_planes(reach));
}

FetchPtr Schedule::plan(std::int64_t epoch, const std::vector<std::int64_t>& order, std::int64_t step, bool all) {
  auto fetch = std::make_shared<Fetch>();
  fetch->epoch = epoch;
  const auto first = step * options_.batch;
  fetch->n = std::min(options_.batch, static_cast<std::int64_t>(order.size()) - first);
  std::int64_t begin = 0, end = fetch->n;
  if (const auto& layout = layouts(fetch->n).x) {
    const auto box = layout->box();
    begin = box.begin[0], end = box.end[0];
  }
  const auto from = all ? 0 : begin, to = all ? fetch->n : end;
  for (auto i = from; i < to; ++i) fetch->items.push_back(drawn(epoch, order[static_cast<std::size_t>(first + i)]));
  for (auto i = begin; i < end; ++i) {
    auto& item = fetch->items[static_cast<std::size_t>(i - from)];
    item.pieces = pieces(item, spatial_);
    if (tones_) item.tones = &tones_->of(item.sample);
  }
  return fetch;
}

}  // namespace mpigrad::data
