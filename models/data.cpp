#include "models/data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <unordered_map>

#include "framework/cuda/cuda.h"
#include "framework/random.h"
#include "models/data_augment.h"

namespace mpigrad::data {

namespace {

// A box of a sample in memory, or on its way there. The I/O thread writes into it, so it waits before it goes.
struct Region {
  Box box;
  std::unique_ptr<std::byte[]> bytes;
  std::shared_future<void> ready;

  Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() {
    if (ready.valid()) ready.wait();
  }
};
using RegionPtr = std::shared_ptr<Region>;

// Memory of the host from which a batch goes to a GPU.
struct Pinned {
  cuda::PinnedBuffer memory;
  cuda::Event copied;

  explicit Pinned(std::int64_t bytes) : memory(bytes) {}
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() {
    try {
      if (!copied.reached()) copied.synchronise();
    } catch (...) {  // a GPU that has failed reads nothing more
    }
  }
};

// The same for every rank.
void shuffle(std::vector<std::int64_t>& values, const Philox& random) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i, i)]);
}

}  // namespace

struct Loader::State {
  SourcePtr source;
  LoaderOptions options;
  std::vector<std::int64_t> samples;
  AugmentationKinds kinds;
  Transform transform = Transform::none;
  DType target_dtype = DType::float32;
  bool classes = false;
  bool keep = false;  // all regions that this rank ever needs fit in the cache
  Box spatial;        // this rank's block of [D, H, W]

  struct Layouts {
    LayoutPtr x, y;
  };
  std::map<std::int64_t, Layouts> layouts;  // by the batch's N
  std::unordered_map<std::int64_t, RegionPtr> kept;
  std::unordered_map<std::int64_t, std::vector<double>> targets;

  std::int64_t steps() const {
    const auto n = static_cast<std::int64_t>(samples.size());
    return options.drop_last ? n / options.batch : (n + options.batch - 1) / options.batch;
  }
  std::vector<std::int64_t> order(std::int64_t epoch) const {
    auto result = samples;
    if (options.shuffle) shuffle(result, Philox{options.seed, static_cast<std::uint64_t>(epoch)}.child(0));
    return result;
  }
  Shape shape(std::int64_t n) const {
    const auto& e = source->extents();
    return {n, e[0], e[1], e[2], source->channels()};
  }
  const Layouts& layouts_for(std::int64_t n);
  RegionPtr read(std::int64_t sample, const Box& box) const;
  RegionPtr region(std::int64_t sample, const Box& box);
  std::shared_ptr<Fetch> start(std::int64_t epoch, const std::vector<std::int64_t>& order, std::int64_t step);
  // The types of this rank's part of a batch.
  std::pair<TensorType, TensorType> types(const Fetch& fetch) const;
  // Decodes and augments into memory of the host.
  void fill(Fetch& fetch, std::byte* x, std::byte* y);
  Batch laid_out(const Fetch& fetch, const Tensor& x, const Tensor& y);
  Batch finish(Fetch& fetch);
  Batch finish(Fetch& fetch, Places& places);

  std::array<std::unique_ptr<Pinned>, 2> pinned;  // in turn
  std::size_t next_pinned = 0;
};

// Where the batches of an epoch are on a GPU: two places in turn, so that one is filled while the other is computed with.
struct Loader::Places {
  struct Place {
    std::shared_ptr<Storage> x, y;
    cuda::Event used;  // behind the work of the step that used it
  };
  std::array<Place, 2> places;
  std::size_t next = 0;

  // The step that used the batch before has been given out.
  void step_is_given() { places[1 - next].used.record(cuda::compute_stream()); }

  // Memory at `place` that nobody uses any more when the copy stream gets there.
  static Tensor free_memory(std::shared_ptr<Storage>& storage, const TensorType& type) {
    const auto bytes = type.shape.elements() * size_of(type.dtype);
    if (!storage || storage.use_count() > 1 || storage->bytes() < bytes) {
      storage = std::make_shared<Storage>(bytes, DeviceKind::cuda);
      cuda::wait(cuda::copy_stream(), cuda::compute_stream());  // which may have given it back just now
    }
    return {type, storage, 0};
  }
};

struct Loader::Fetch {
  struct Item {
    std::int64_t sample = 0;
    std::vector<Piece> pieces;
    std::vector<RegionPtr> regions;  // one for each piece
    std::future<std::vector<double>> targets;
  };
  std::int64_t n = 0;       // of all ranks
  std::vector<Item> items;  // this rank's
};

const Loader::State::Layouts& Loader::State::layouts_for(std::int64_t n) {
  auto& found = layouts[n];
  if (!found.x && options.grid) {
    found.x = activation_layout(options.grid, shape(n));
    const auto t = static_cast<std::int64_t>(source->target_names().size());
    found.y = split_layout(options.grid, classes ? Shape{n} : Shape{n, t}, {0, -1, -1, -1});
  }
  return found;
}

RegionPtr Loader::State::read(std::int64_t sample, const Box& box) const {
  auto region = std::make_shared<Region>();
  region->box = box;
  const auto bytes = box.elements() * source->channels() * size_of(source->type());
  region->bytes = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
  region->ready = source->read_async(sample, box.begin.span(), box.end.span(), source->type(), region->bytes.get()).share();
  return region;
}

// What holds `box`: of what is kept, one region of the sample holds every box that is ever asked for.
RegionPtr Loader::State::region(std::int64_t sample, const Box& box) {
  if (!keep) return read(sample, box);
  auto& found = kept[sample];
  if (!found) found = read(sample, kinds.any() ? Box{Shape{0, 0, 0}, source->extents()} : spatial);
  return found;
}

std::shared_ptr<Loader::Fetch> Loader::State::start(std::int64_t epoch, const std::vector<std::int64_t>& order,
                                                    std::int64_t step) {
  auto fetch = std::make_shared<Fetch>();
  const auto first = step * options.batch;
  fetch->n = std::min(options.batch, static_cast<std::int64_t>(order.size()) - first);
  std::int64_t begin = 0, end = fetch->n;
  if (const auto& layout = layouts_for(fetch->n).x) {
    const auto box = layout->box();
    begin = box.begin[0], end = box.end[0];
  }
  for (auto i = begin; i < end; ++i) {
    auto& item = fetch->items.emplace_back();
    item.sample = order[static_cast<std::size_t>(first + i)];
    if (!targets.contains(item.sample)) item.targets = source->targets_async(item.sample);
    item.pieces =
        pieces_of(spatial, source->extents(), draw_augmentation(options.seed, epoch, item.sample, source->extents(), kinds));
    for (const auto& piece : item.pieces) item.regions.push_back(region(item.sample, piece.box));
  }
  return fetch;
}

std::pair<TensorType, TensorType> Loader::State::types(const Fetch& fetch) const {
  const auto n = static_cast<std::int64_t>(fetch.items.size()), t = static_cast<std::int64_t>(source->target_names().size());
  const auto extents = spatial.extents();
  return {{Shape{n, extents[0], extents[1], extents[2], source->channels()}, options.dtype},
          {classes ? Shape{n} : Shape{n, t}, target_dtype}};
}

void Loader::State::fill(Fetch& fetch, std::byte* x, std::byte* y) {
  const auto n = static_cast<std::int64_t>(fetch.items.size());
  const auto extents = spatial.extents();
  const auto channels = source->channels(), t = static_cast<std::int64_t>(source->target_names().size());
  const auto bytes = extents.elements() * channels * size_of(options.dtype);
  for (std::int64_t i = 0; i < n; ++i) {
    auto& item = fetch.items[static_cast<std::size_t>(i)];
    const auto name = [&] { return source->name_of_sample(item.sample); };
    for (std::size_t p = 0; p < item.pieces.size(); ++p) {
      const auto& region = *item.regions[p];
      region.ready.get();
      copy_piece(item.pieces[p], {region.box, source->type(), region.bytes.get()}, extents, channels, transform, options.dtype,
                 x + i * bytes, name);
    }
    if (item.targets.valid()) targets[item.sample] = item.targets.get();
    const auto& values = targets.at(item.sample);
    visit_arithmetic(target_dtype, [&](auto zero) {
      using T = decltype(zero);
      auto* to = reinterpret_cast<T*>(y) + i * t;
      for (std::int64_t j = 0; j < t; ++j) to[j] = static_cast<T>(values[static_cast<std::size_t>(j)]);
    });
  }
}

Batch Loader::State::laid_out(const Fetch& fetch, const Tensor& x, const Tensor& y) {
  const auto& layout = layouts_for(fetch.n);
  if (!layout.x) return {constant(x), constant(y)};
  return {constant(x).with_layout(layout.x), constant(y).with_layout(layout.y)};
}

Batch Loader::State::finish(Fetch& fetch) {
  const auto [x_type, y_type] = types(fetch);
  const Tensor x(x_type, DeviceKind::cpu), y(y_type, DeviceKind::cpu);
  fill(fetch, x.raw(), y.raw());
  if (options.device != DeviceKind::cuda) return laid_out(fetch, x, y);
  return laid_out(fetch, detail::copied(x, options.device), detail::copied(y, options.device));
}

// The host waits for nothing but the copy of the batch before the last, which has been used.
Batch Loader::State::finish(Fetch& fetch, Places& places) {
  constexpr std::int64_t alignment = 512;
  const auto [x_type, y_type] = types(fetch);
  const auto of_x = x_type.shape.elements() * size_of(x_type.dtype), of_y = y_type.shape.elements() * size_of(y_type.dtype);
  const auto before_y = (of_x + alignment - 1) / alignment * alignment;
  auto& host = pinned[std::exchange(next_pinned, 1 - next_pinned)];
  if (host) host->copied.throttle();
  if (!host || host->memory.bytes() < before_y + of_y) host = std::make_unique<Pinned>(before_y + of_y);
  auto* from = host->memory.data();
  fill(fetch, from, from + before_y);

  auto& place = places.places[std::exchange(places.next, 1 - places.next)];
  const auto stream = cuda::copy_stream();
  place.used.hold(stream);
  const auto x = Places::free_memory(place.x, x_type), y = Places::free_memory(place.y, y_type);
  cuda::copy(x.raw(), from, of_x, stream);
  cuda::copy(y.raw(), from + before_y, of_y, stream);
  host->copied.record(stream);
  host->copied.hold(cuda::compute_stream());
  return laid_out(fetch, x, y);
}

// ---- Loader

Loader::Loader(SourcePtr source, LoaderOptions options) : state_(std::make_shared<State>()) {
  auto& s = *state_;
  s.source = std::move(source);
  s.options = std::move(options);
  const auto& o = s.options;
  require(s.source != nullptr, "[data] a loader needs a source");
  const auto size = s.source->size();
  const auto& extents = s.source->extents();
  require(o.batch > 0, "[data] a batch has at least one sample, not {}", o.batch);
  require(is_floating(o.dtype), "[data] x is of a floating-point type, not {}", name_of(o.dtype));
  for (const auto dtype : {o.dtype, o.target_dtype.value_or(o.dtype)})
    require(!is_half(dtype), "[data] batches are float32 or float64, not {}: cast them", name_of(dtype));
  s.samples = o.samples;
  if (s.samples.empty()) {
    s.samples.resize(static_cast<std::size_t>(size));
    std::iota(s.samples.begin(), s.samples.end(), 0);
  }
  for (const auto sample : s.samples) require(sample >= 0 && sample < size, "[data] sample {} of {}", sample, size);
  require(s.steps() > 0, "[data] {} samples make no batch of {}", s.samples.size(), o.batch);
  require(!o.transpositions || (extents[0] == extents[1] && extents[1] == extents[2]), "[data] transpositions are for cubes: {}",
          extents);

  s.kinds = {o.flips, o.shifts, o.transpositions};
  s.transform = o.transform == Transform::of_source ? s.source->transform() : o.transform;
  s.target_dtype = o.target_dtype.value_or(s.source->target_type() == DType::int64 ? DType::int64 : o.dtype);
  require(s.target_dtype == DType::int64 || is_floating(s.target_dtype), "[data] y is int64 or floating-point, not {}",
          name_of(s.target_dtype));
  require(s.target_dtype != DType::int64 || s.source->target_type() == DType::int64,
          "[data] targets are numbers, not classes: {}", fmt::join(s.source->target_names(), ", "));
  s.classes = s.target_dtype == DType::int64;

  s.spatial = {Shape{0, 0, 0}, extents};
  if (o.grid) {
    const auto box = s.layouts_for(o.batch).x->box();
    for (int a = 0; a < 3; ++a) {
      const auto ranks = o.grid->extents[static_cast<std::size_t>(a + 1)];
      require(ranks <= extents[a], "[data] {} ranks along {} for {} planes: input {}", ranks,
              o.grid->names[static_cast<std::size_t>(a + 1)], extents[a], s.shape(o.batch));
      s.spatial.begin[a] = box.begin[a + 1], s.spatial.end[a] = box.end[a + 1];
    }
  }
  const auto budget =
      o.cache_bytes >= 0 ? o.cache_bytes : (std::int64_t{1} << 30) / (o.grid ? o.grid->world().transport().node_size() : 1);
  const auto values = (s.kinds.any() ? extents : s.spatial.extents()).elements() * s.source->channels();
  s.keep = static_cast<double>(values) * static_cast<double>(size_of(s.source->type())) * static_cast<double>(s.samples.size()) <=
           static_cast<double>(budget);
}

Loader::Loader(const std::filesystem::path& path, LoaderOptions options)
    : Loader(std::make_shared<UniverseSource>(path), std::move(options)) {}

const Source& Loader::source() const { return *state_->source; }
const LoaderOptions& Loader::options() const { return state_->options; }
std::int64_t Loader::samples() const {
  const auto n = static_cast<std::int64_t>(state_->samples.size());
  return state_->options.drop_last ? n / state_->options.batch * state_->options.batch : n;
}
std::int64_t Loader::steps() const { return state_->steps(); }
Shape Loader::shape() const { return state_->shape(state_->options.batch); }
LayoutPtr Loader::layout() const { return state_->layouts_for(state_->options.batch).x; }
LayoutPtr Loader::target_layout() const { return state_->layouts_for(state_->options.batch).y; }

std::vector<std::int64_t> Loader::samples_of(std::int64_t epoch, std::int64_t step) const {
  require(step >= 0 && step < steps(), "[data] step {} of {}", step, steps());
  const auto order = state_->order(epoch);
  const auto begin = step * state_->options.batch;
  const auto end = std::min(begin + state_->options.batch, static_cast<std::int64_t>(order.size()));
  return {order.begin() + begin, order.begin() + end};
}

Batch Loader::batch(std::int64_t epoch, std::int64_t step) const {
  require(step >= 0 && step < steps(), "[data] step {} of {}", step, steps());
  return state_->finish(*state_->start(epoch, state_->order(epoch), step));
}

Loader::Epoch Loader::epoch(std::int64_t epoch) const { return {state_, epoch, steps()}; }

Loader::Epoch::Iterator Loader::Epoch::begin() {
  if (step_ < 0) {
    order_ = state_->order(epoch_);
    advance();
  }
  return Iterator(this);
}

void Loader::Epoch::advance() {
  current_ = {};
  if (places_) places_->step_is_given();
  if (++step_ >= steps_) return;
  const auto fetch = next_ ? std::move(next_) : state_->start(epoch_, order_, step_);
  next_ = state_->options.prefetch && step_ + 1 < steps_ ? state_->start(epoch_, order_, step_ + 1) : nullptr;
  if (state_->options.device != DeviceKind::cuda) {
    current_ = state_->finish(*fetch);
  } else {
    if (!places_) places_ = std::make_shared<Places>();
    current_ = state_->finish(*fetch, *places_);
  }
}

Split split_train_test(std::int64_t n, double fraction, std::uint64_t seed) {
  require(n >= 2 && fraction > 0 && fraction < 1, "[data] {} samples cannot be split with a fraction of {} for the test", n,
          fraction);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  shuffle(order, Philox{seed, 0}.child(2));
  const auto count = std::clamp<std::int64_t>(std::llround(fraction * static_cast<double>(n)), 1, n - 1);
  Split split{{order.begin() + count, order.end()}, {order.begin(), order.begin() + count}};
  std::sort(split.train.begin(), split.train.end());
  std::sort(split.test.begin(), split.test.end());
  return split;
}

}  // namespace mpigrad::data
