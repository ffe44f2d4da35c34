#include "models/data/data.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <utility>

#include "framework/tensor/random.h"
#include "models/data/loader_state.h"
#include "models/data/sources/bytes.h"
#include "models/data/sources/hdf5.h"

namespace mpigrad::data {

const Loader::State::Layouts& Loader::State::layouts_for(std::int64_t n) {
  auto& found = layouts[n];
  if (!found.x && options.grid) {
    found.x = input_layout(options.grid, shape(n));
    const bool per_cell = source->target_type().per_cell;
    found.y = split_layout(options.grid, target_shape(n, window), {0, per_cell ? 1 : -1, per_cell ? 2 : -1, per_cell ? 3 : -1});
  }
  return found;
}

std::shared_ptr<Loader::Fetch> Loader::State::start(std::int64_t epoch, const std::vector<std::int64_t>& order, std::int64_t step,
                                                    bool ahead) {
  auto fetch = std::make_shared<Fetch>();
  fetch->epoch = epoch;
  const auto first = step * options.batch;
  fetch->n = std::min(options.batch, static_cast<std::int64_t>(order.size()) - first);
  std::int64_t begin = 0, end = fetch->n;
  if (const auto& layout = layouts_for(fetch->n).x) {
    const auto box = layout->box();
    begin = box.begin[0], end = box.end[0];
  }
  // With a store, what others need has to be known, too.
  const auto from = store ? 0 : begin, to = store ? fetch->n : end;
  std::vector<Fetch::Item> batch;
  for (auto i = from; i < to; ++i) batch.push_back(drawn(epoch, order[static_cast<std::size_t>(first + i)]));
  for (auto i = begin; i < end; ++i) {
    auto& item = batch[static_cast<std::size_t>(i - from)];
    item.pieces = pieces_for(item, spatial);
  }
  fetch->items = store ? from_store(*fetch, std::move(batch), ahead) : std::move(batch);
  for (auto& item : fetch->items) read(item);
  if (ahead) assemble_ahead(fetch);
  return fetch;
}

Loader::Fetch::Item Loader::State::drawn(std::int64_t epoch, std::int64_t sample) {
  Fetch::Item item{.sample = sample, .map = draw_augmentation(options.seed, epoch, sample, window, kinds)};
  item.extents = options.crop ? source->extents_of(sample) : window;
  if (options.crop)
    item.begin = draw_window(options.seed, epoch, sample, item.extents, *options.crop, foreground ? &*foreground : nullptr);
  if (options.elastic)
    item.deformation.emplace(*options.elastic, random_of(epoch, sample, 4), window, item.map, item.begin, item.extents);
  return item;
}

std::vector<Piece> Loader::State::pieces_for(const Fetch::Item& item, const Box& block) const {
  if (!item.deformation) return pieces_in_sample(pieces_of(block, window, item.map), item.begin, item.extents);
  const auto box = item.deformation->needed(block);
  if (box.elements() == 0) return {};
  return {Piece{.box = box}};
}

// Asks for what a sample's block is made of and no store has.
void Loader::State::read(Fetch::Item& item) {
  const bool stored = !item.regions.empty();
  const bool per_cell = source->target_type().per_cell;
  Reads reads;
  for (const auto& piece : item.pieces) {
    if (!stored) item.regions.push_back(regions->get(item.sample, piece.box, reads));
    if (!stored && per_cell) item.targets.push_back(targets->get(item.sample, piece.box, reads));
  }
  if (!per_cell && item.targets.empty()) item.targets.push_back(targets->get(item.sample, spatial, reads));
  reads.start(*source);
}

// This rank's samples of a batch, with their regions where they are kept.
std::vector<Loader::Fetch::Item> Loader::State::from_store(Fetch& fetch, std::vector<Fetch::Item> batch, bool ahead) {
  const auto& layout = layouts_for(fetch.n).x;
  std::vector<SampleStore::Wanted> wanted;
  int group = 0;
  for (std::int64_t i = 0; i < fetch.n; ++i) {
    if (layout && layout->axes[0].placement == Placement::split)
      while (layout->axes[0].cuts[static_cast<std::size_t>(group) + 1] <= i) ++group;
    wanted.push_back({batch[static_cast<std::size_t>(i)].sample, group});
  }
  const auto boxes = [&](std::size_t i, int rank) {
    auto reach = spatial;
    if (layout) {
      const auto theirs = layout->box(rank);
      for (int a = 0; a < 3; ++a) reach.begin[a] = theirs.begin[a + 1], reach.end[a] = theirs.end[a + 1];
      reach = with_ghost_planes(reach);
    }
    std::vector<Box> result;
    for (const auto& piece : pieces_for(batch[i], reach)) result.push_back(piece.box);
    return result;
  };
  fetch.stored = store->start(wanted, boxes, ahead);
  const int mine = layout ? layout->grid->coordinates(layout->grid->rank)[0] : 0;
  std::vector<Fetch::Item> items;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (wanted[i].group != mine) continue;
    auto& item = items.emplace_back(std::move(batch[i]));
    item.regions = fetch.stored->values(i), item.targets = fetch.stored->targets(i);
  }
  return items;
}

std::deque<std::shared_ptr<Loader::Fetch>> Loader::State::begun(std::int64_t epoch, std::int64_t first) {
  const auto last = std::exchange(asked, epoch);
  auto found = std::exchange(following, {});
  // A loader that is asked for the same epoch again and again, as for tests, would keep memory while another one is used.
  if (epoch == last + 1 && epoch > 0 && !store) following.epoch = epoch + 1;
  if (found.epoch != epoch || first != 0) return {};
  return std::move(found.fetches);
}

void Loader::State::follow(std::size_t others) {
  auto& f = following;
  if (f.epoch < 0) return;
  if (f.order.empty()) f.order = schedule.order(f.epoch);
  while (others + f.fetches.size() <= static_cast<std::size_t>(options.prefetch) &&
         static_cast<std::int64_t>(f.fetches.size()) < schedule.steps())
    f.fetches.push_back(start(f.epoch, f.order, static_cast<std::int64_t>(f.fetches.size()), assembles_ahead()));
}

// ---- Loader

Loader::Loader(SourcePtr source, LoaderOptions options) {
  require(source != nullptr, "[data] a loader needs a source");
  const auto window = options.crop ? options.crop->extents : source->extents();
  require(is_floating(options.dtype), "[data] x is of a floating-point type, not {}", name_of(options.dtype));
  for (const auto dtype : {options.dtype, options.target_dtype.value_or(options.dtype)})
    require(!is_half(dtype), "[data] batches are float32 or float64, not {}: cast them", name_of(dtype));
  state_ = std::make_shared<State>(source, std::move(options));
  auto& s = *state_;
  const auto& o = s.options;
  require(window.rank() == 3 && window.elements() > 0, "[data] windows are [D, H, W], at least 1 each: {}", window);
  require(!o.transpositions || (window[0] == window[1] && window[1] == window[2]), "[data] transpositions are for cubes: {}",
          window);
  if (!o.crop) require_same_extents(*source, "batches of whole samples need samples of one size, or a crop");
  require(!o.shifts || (!o.crop && !o.elastic), "[data] periodic shifts are of whole samples, without an elastic deformation");
  require(!o.elastic || (o.elastic->amplitude >= 0 && std::isfinite(o.elastic->amplitude) && o.elastic->spacing > 0),
          "[data] an elastic deformation has an amplitude of 0 or more and a spacing above 0, in cells");
  require(o.intensity.contrast >= 0 && o.intensity.brightness >= 0 && o.intensity.noise >= 0,
          "[data] contrast, brightness and noise are not negative");
  require(o.prefetch >= 0, "[data] {} batches cannot be read ahead", o.prefetch);
  s.window = window;

  s.kinds = {o.flips, o.shifts, o.transpositions};
  s.transform = o.transform == Transform::of_source ? s.source->transform() : o.transform;
  // What changes values between the cells or at random computes with numbers, on the host.
  const bool as_stored = o.device == DeviceKind::cuda && is_narrow(s.source->type()) && !o.elastic && !o.intensity.any();
  s.assembled = as_stored ? s.source->type() : o.dtype;
  if (as_stored) s.widening.emplace(s.assembled, s.transform, o.dtype);
  const auto& target = s.source->target_type();
  const auto own = is_floating(target.type) ? o.dtype : target.per_cell ? target.type : DType::int64;
  s.target_dtype = o.target_dtype.value_or(own);
  require(is_floating(s.target_dtype) || !is_floating(own),
          "[data] y is floating-point, not {}: targets are numbers, not classes", name_of(s.target_dtype));
  require(is_floating(s.target_dtype) || s.target_dtype == own, "[data] y is {} or floating-point, not {}", name_of(own),
          name_of(s.target_dtype));
  if (o.crop && o.crop->foreground != 0) {
    require(o.crop->foreground > 0 && o.crop->foreground <= 1,
            "[data] the part of windows with foreground is from 0 to 1, not {}", o.crop->foreground);
    require(target.per_cell && target.shape.elements() == 1 && !is_floating(target.type),
            "[data] windows with foreground need labels of cells");
    s.foreground.emplace(s.source);
  }

  s.spatial = {Shape{0, 0, 0}, window};
  if (o.grid) {
    const auto box = s.layouts_for(o.batch).x->box();
    require_planes(o.grid, s.shape(o.batch));
    for (int a = 0; a < 3; ++a) {
      s.spatial.begin[a] = box.begin[a + 1], s.spatial.end[a] = box.end[a + 1];
      if (s.layouts_for(o.batch).x->axis_of(a + 1) >= 0) s.width[static_cast<std::size_t>(a)] = o.ghosts;
    }
  }
  require(o.ghosts >= 0, "[data] {} ghost planes cannot be read", o.ghosts);
  s.block = s.spatial, s.spatial = s.with_ghost_planes(s.block);
  // Windows are elsewhere in each epoch; a source that keeps samples is the better place for them.
  const bool moves = s.kinds.any() || o.elastic;
  const auto& largest = moves ? s.source->whole() : s.spatial;
  require(o.store_bytes >= 0, "[data] a store has room for bytes from 0 on, not {}", o.store_bytes);
  require(o.piece_bytes > 0, "[data] pieces that are read collectively have bytes, not {}", o.piece_bytes);
  const bool together = (o.store_bytes > 0 || o.collective) && !s.source->in_memory();
  const auto cache = together ? 0 : o.cache_bytes;
  s.regions.emplace(s.source, Regions::Part::values, largest, s.schedule.samples.size(), o.crop ? 0 : cache, o.grid);
  s.targets.emplace(s.source, Regions::Part::targets, largest, s.schedule.samples.size(),
                    target.per_cell ? s.regions->left() : o.cache_bytes, o.grid);
  if (together) s.store.emplace(s.source, o.grid, o.store_bytes, o.collective ? o.piece_bytes : 0);
}

Loader::Loader(const std::filesystem::path& path, LoaderOptions options)
    : Loader(std::make_shared<UniverseSource>(path), std::move(options)) {}

const Source& Loader::source() const { return *state_->source; }
const LoaderOptions& Loader::options() const { return state_->options; }
std::int64_t Loader::samples() const { return state_->schedule.samples_per_epoch(); }
std::int64_t Loader::steps() const { return state_->schedule.steps(); }
Shape Loader::shape() const { return state_->shape(state_->options.batch); }
LayoutPtr Loader::layout() const { return state_->layouts_for(state_->options.batch).x; }
LayoutPtr Loader::target_layout() const { return state_->layouts_for(state_->options.batch).y; }

Loader::InStore Loader::stored() const {
  const auto& store = state_->store;
  if (!store) return {};
  const auto& samples = state_->schedule.samples;
  return {store->samples(), store->room_for(samples), static_cast<std::int64_t>(samples.size()), store->bytes()};
}

std::vector<std::int64_t> Loader::samples_of(std::int64_t epoch, std::int64_t step) const {
  return state_->schedule.samples_of(epoch, step);
}

Batch Loader::batch(std::int64_t epoch, std::int64_t step) const {
  require(step >= 0 && step < steps(), "[data] step {} of {}", step, steps());
  return state_->finish(*state_->start(epoch, state_->schedule.order(epoch), step));
}

Batches<Batch> Loader::epoch(std::int64_t epoch, std::int64_t first) const {
  return {steps(),
          [state = state_, epoch, order = state_->schedule.order(epoch), places = std::shared_ptr<cuda::Uploads::Places>(),
           next = state_->begun(epoch, first)](std::int64_t step) mutable {
            if (places) places->step_is_given();
            if (next.empty()) next.push_back(state->start(epoch, order, step, state->assembles_ahead()));
            const auto ahead = static_cast<std::size_t>(state->options.prefetch);
            for (auto later = step + static_cast<std::int64_t>(next.size());
                 next.size() <= ahead && later < state->schedule.steps(); ++later)
              next.push_back(state->start(epoch, order, later, state->assembles_ahead()));
            if (state->asked == epoch && step + static_cast<std::int64_t>(next.size()) == state->schedule.steps())
              state->follow(next.size());
            const auto fetch = std::move(next.front());
            next.pop_front();
            if (state->options.device != DeviceKind::cuda) return state->finish(*fetch);
            if (!places) places = std::make_shared<cuda::Uploads::Places>();
            return state->finish(*fetch, *places);
          },
          first};
}

}  // namespace mpigrad::data
