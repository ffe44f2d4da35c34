#include "models/data/data.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <span>
#include <utility>

#include "comm/spatial/ghosts.h"
#include "framework/cuda/staging.h"
#include "framework/job_queue.h"
#include "framework/tensor/random.h"
#include "models/data/data_augment.h"
#include "models/data/data_parts.h"
#include "models/data/narrow.h"
#include "models/data/sources/bytes.h"
#include "models/data/sources/hdf5.h"
#include "models/data/store.h"
#include "ops/views.h"

namespace mpigrad::data {

struct Loader::Fetch {
  struct Item {
    std::int64_t sample = 0;
    Augmentation map{};
    Shape extents{};                           // of the sample
    std::array<std::int64_t, 3> begin{};       // of the window in it
    std::optional<Deformation> deformation{};  // of one piece
    std::vector<Piece> pieces{};               // of this rank's block
    std::vector<RegionPtr> regions{};          // one for each piece
    std::vector<RegionPtr> targets{};          // likewise where each cell has some, else one
  };
  std::int64_t epoch = 0;
  std::int64_t n = 0;       // of all ranks
  std::vector<Item> items;  // this rank's
  std::shared_ptr<StoreBatch> stored;
  // Where it is put together ahead.
  Tensor x, y;
  std::future<void> assembled;
};

struct Loader::State {
  State(SourcePtr source_, LoaderOptions options_)
      : source(std::move(source_)), options(std::move(options_)),
        schedule(*source, options.samples, options.batch, options.seed, options.shuffle, options.drop_last) {}

  SourcePtr source;
  LoaderOptions options;
  Schedule schedule;
  AugmentationKinds kinds;
  Transform transform = Transform::none;
  DType target_dtype = DType::float32;
  DType assembled = DType::float32;  // of x where it is put together: options.dtype, or the stored type on the way to a GPU
  std::optional<Widening> widening;  // there, of the latter
  Shape window;                      // [D, H, W] of a batch's samples
  std::optional<ForegroundCells> foreground;
  Box block;                            // this rank's of [D, H, W]
  Box spatial;                          // that with its ghost planes: what is read and put together
  std::array<std::int64_t, 3> width{};  // of ghost planes on any rank
  std::optional<Regions> regions, targets;
  std::optional<SampleStore> store;

  struct Layouts {
    LayoutPtr x, y;
  };
  std::map<std::int64_t, Layouts> layouts;  // by the batch's N

  Shape shape(std::int64_t n) const { return {n, window[0], window[1], window[2], source->channels()}; }
  // Of n samples' targets, of the cells in a box where they are volumes. One class each is [N].
  Shape target_shape(std::int64_t n, const Shape& box) const {
    const auto& t = source->target_type();
    std::vector<std::int64_t> extents{n};
    if (t.per_cell) extents.insert(extents.end(), box.begin(), box.end());
    const bool one_class = !t.per_cell && t.shape == Shape{1} && !is_floating(target_dtype);
    if (!one_class) extents.insert(extents.end(), t.shape.begin(), t.shape.end());
    return Shape(extents);
  }
  // A rank's block with the ghost planes around it.
  Box with_ghost_planes(Box of) const {
    for (int a = 0; a < 3; ++a) {
      const auto w = width[static_cast<std::size_t>(a)];
      of.begin[a] = std::max<std::int64_t>(0, of.begin[a] - w), of.end[a] = std::min(window[a], of.end[a] + w);
    }
    return of;
  }
  const Layouts& layouts_for(std::int64_t n);
  std::shared_ptr<Fetch> start(std::int64_t epoch, const std::vector<std::int64_t>& order, std::int64_t step, bool ahead = false);
  // A sample as it is in an epoch, for any rank.
  Fetch::Item drawn(std::int64_t epoch, std::int64_t sample);
  // What a block of its window is made of.
  std::vector<Piece> pieces_for(const Fetch::Item& item, const Box& block) const;
  void read(Fetch::Item& item);
  std::vector<Fetch::Item> from_store(Fetch& fetch, std::vector<Fetch::Item> batch, bool ahead);
  Philox random_of(std::int64_t epoch, std::int64_t sample, std::uint64_t purpose) const {
    return Philox{options.seed, static_cast<std::uint64_t>(epoch)}.child(purpose).child(static_cast<std::uint64_t>(sample));
  }
  // One part of a sample's block, [d, h, w, cell elements]: the pieces of its regions, zeros where there are none, or what the
  // deformation makes of the one.
  struct Values {
    DType stored, type;
    std::int64_t channels = 1;
    Transform transform = Transform::none;
    bool nearest = false;                // of what is deformed; else interpolated
    Transform on_gpu = Transform::none;  // of values that are widened there
  };
  void assemble(const Fetch::Item& item, const std::vector<RegionPtr>& read, const Values& values, std::byte* to) const;
  // The types of this rank's part of a batch, as it is put together.
  std::pair<TensorType, TensorType> types(const Fetch& fetch) const;
  // Decodes and augments into memory of the host.
  void fill(Fetch& fetch, std::byte* x, std::byte* y);
  Batch laid_out(const Fetch& fetch, const Tensor& x, const Tensor& y);
  // The same on a GPU, of what arrived there.
  Batch arrived(const Fetch& fetch, const Tensor& x, const Tensor& y) {
    return laid_out(fetch, widening ? (*widening)(x) : x, y);
  }
  Batch finish(Fetch& fetch);
  Batch finish(Fetch& fetch, cuda::Uploads::Places& places);

  // Whether batches are put together ahead, which batch() by itself is not.
  bool assembles_ahead() const {
    return options.prefetch > 0 && options.assemble_ahead.value_or(options.device == DeviceKind::cuda) &&
           (!store || store->any_thread());
  }
  void assemble_ahead(const std::shared_ptr<Fetch>& fetch);
  // Host memory of a batch, filled.
  std::pair<Tensor, Tensor> on_host(Fetch& fetch);

  // Epochs that are asked for one after the other go on without a gap: while the last batches of one are used, the first of the
  // next are read. Not with a store, whose messages are in an order that all ranks know.
  struct Following {
    std::int64_t epoch = -1;
    std::vector<std::int64_t> order;
    std::deque<std::shared_ptr<Fetch>> fetches;
  };
  Following following;
  std::int64_t asked = -1;  // the epoch before
  // What is there of an epoch that is asked for now.
  std::deque<std::shared_ptr<Fetch>> begun(std::int64_t epoch, std::int64_t first);
  // Starts to read the next one, beside `others` batches that are being read.
  void follow(std::size_t others);

  cuda::Uploads uploads;
  std::optional<JobQueue> assembler;  // ends first
};

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

std::pair<TensorType, TensorType> Loader::State::types(const Fetch& fetch) const {
  const auto n = static_cast<std::int64_t>(fetch.items.size());
  const auto extents = spatial.extents();
  return {{Shape{n, extents[0], extents[1], extents[2], source->channels()}, assembled},
          {target_shape(n, extents), target_dtype}};
}

void Loader::State::assemble(const Fetch::Item& item, const std::vector<RegionPtr>& read, const Values& v, std::byte* to) const {
  const auto name = [&] { return source->name_of_sample(item.sample); };
  const auto extents = spatial.extents();
  const auto cell = v.channels * size_of(v.type);
  std::int64_t covered = 0;
  for (const auto& piece : item.pieces) covered += piece.box.elements();
  if (item.deformation ? covered == 0 : covered < extents.elements())
    std::memset(to, 0, static_cast<std::size_t>(extents.elements() * cell));
  for (std::size_t p = 0; p < item.pieces.size(); ++p) {
    const auto& region = *read[p];
    region.ready.get();
    const Stored stored{region.box, v.stored, region.bytes.get()};
    if (!item.deformation) {
      if (v.on_gpu == Transform::log1p) require_counts(item.pieces[p].box, stored, v.channels, name);
      copy_piece(item.pieces[p], stored, extents, v.channels, v.transform, v.type, to, name);
      continue;
    }
    const auto box = item.pieces[p].box.extents();
    std::vector<std::byte> whole(static_cast<std::size_t>(box.elements() * cell));
    copy_piece(item.pieces[p], stored, box, v.channels, v.transform, v.type, whole.data(), name);
    const auto interpolate = [&](auto zero) {
      using T = decltype(zero);
      item.deformation->values(spatial, v.channels, reinterpret_cast<const T*>(whole.data()), reinterpret_cast<T*>(to));
    };
    if (v.nearest) item.deformation->labels(spatial, cell, whole.data(), to);
    else visit_floating(v.type, interpolate);
  }
}

void Loader::State::fill(Fetch& fetch, std::byte* x, std::byte* y) {
  if (fetch.stored) fetch.stored->finish();
  const auto n = static_cast<std::int64_t>(fetch.items.size());
  const auto extents = spatial.extents();
  const auto channels = source->channels();
  const auto& target = source->target_type();
  const auto bytes = extents.elements() * channels * size_of(assembled);
  const auto numbers = target.shape.elements() * (target.per_cell ? extents.elements() : 1);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto& item = fetch.items[static_cast<std::size_t>(i)];
    auto* values = x + i * bytes;
    const Values here{.stored = source->type(), .type = assembled, .channels = channels, .transform = transform};
    const Values there{.stored = assembled, .type = assembled, .channels = channels, .on_gpu = transform};
    assemble(item, item.regions, widening ? there : here, values);
    if (options.intensity.any())
      visit_floating(options.dtype, [&](auto zero) {
        change_values(options.intensity, random_of(fetch.epoch, item.sample, 6), window, spatial, channels,
                      reinterpret_cast<decltype(zero)*>(values));
      });
    auto* to = y + i * numbers * size_of(target_dtype);
    if (target.per_cell) {
      assemble(item, item.targets,
               {target.type, target_dtype, target.shape.elements(), Transform::none, !is_floating(target.type)}, to);
    } else {
      const auto& region = *item.targets.front();
      region.ready.get();
      convert(region.bytes.get(), target.type, numbers, target_dtype, to);
    }
  }
}

Batch Loader::State::laid_out(const Fetch& fetch, const Tensor& x, const Tensor& y) {
  const auto& layout = layouts_for(fetch.n);
  if (!layout.x) return {constant(x), constant(y)};
  if (spatial == block) return {constant(x).with_layout(layout.x), constant(y).with_layout(layout.y)};
  std::array<std::int64_t, 3> low{}, high{};
  for (int a = 0; a < 3; ++a) {
    const auto i = static_cast<std::size_t>(a);
    low[i] = block.begin[a] - spatial.begin[a], high[i] = spatial.end[a] - block.end[a];
  }
  auto own = y;
  if (source->target_type().per_cell)
    for (int a = 0; a < 3; ++a) own = slice(own, a + 1, block.begin[a] - spatial.begin[a], block.end[a] - spatial.begin[a]);
  return {with_ghosts(x, low, high, width).with_layout(layout.x), constant(own).with_layout(layout.y)};
}

// The fetch is kept by its job, not the state: that waits for its jobs.
void Loader::State::assemble_ahead(const std::shared_ptr<Fetch>& fetch) {
  const auto [x_type, y_type] = types(*fetch);
  fetch->x = Tensor(x_type, DeviceKind::cpu), fetch->y = Tensor(y_type, DeviceKind::cpu);
  if (!assembler) assembler.emplace(1);
  fetch->assembled = assembler->submit([this, fetch]() mutable {
    const auto kept = std::move(fetch);  // its future would keep it for ever
    fill(*kept, kept->x.raw(), kept->y.raw());
  });
}

std::pair<Tensor, Tensor> Loader::State::on_host(Fetch& fetch) {
  if (fetch.assembled.valid()) {
    fetch.assembled.get();
    return {std::move(fetch.x), std::move(fetch.y)};
  }
  const auto [x_type, y_type] = types(fetch);
  std::pair batch{Tensor(x_type, DeviceKind::cpu), Tensor(y_type, DeviceKind::cpu)};
  fill(fetch, batch.first.raw(), batch.second.raw());
  return batch;
}

Batch Loader::State::finish(Fetch& fetch) {
  const auto [x, y] = on_host(fetch);
  if (options.device != DeviceKind::cuda) return laid_out(fetch, x, y);
  return arrived(fetch, detail::copied(x, options.device), detail::copied(y, options.device));
}

Batch Loader::State::finish(Fetch& fetch, cuda::Uploads::Places& places) {
  const auto [x_type, y_type] = types(fetch);
  const auto batch = uploads.upload(std::array{x_type, y_type}, places, [&](std::span<std::byte* const> to) {
    if (!fetch.assembled.valid()) return fill(fetch, to[0], to[1]);
    const auto [x, y] = on_host(fetch);
    detail::copy_bytes(DeviceKind::cpu, to[0], x.raw(), x.bytes()),
        detail::copy_bytes(DeviceKind::cpu, to[1], y.raw(), y.bytes());
  });
  return arrived(fetch, batch[0], batch[1]);
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
