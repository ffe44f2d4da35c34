#include "models/data/view_loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <optional>

#include "framework/base/job_queue.h"
#include "models/data/data_augment.h"
#include "models/data/loader/regions.h"
#include "models/data/loader/steps.h"
#include "models/data/sources/bytes.h"

namespace mpigrad::data {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Copies the block of a sample [D, H, W, C] to `out`.
void cut(const augment::Sample& sample, const Box& block, float* out) {
  const auto row = (block.end[2] - block.begin[2]) * sample.channels;
  for (auto d = block.begin[0]; d < block.end[0]; ++d)
    for (auto h = block.begin[1]; h < block.end[1]; ++h, out += row)
      std::memcpy(out,
                  sample.values.data() + ((d * sample.extents[1] + h) * sample.extents[2] + block.begin[2]) * sample.channels,
                  static_cast<std::size_t>(row) * sizeof(float));
}

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

}  // namespace

struct ViewLoader::State {
  State(SourcePtr source_, ViewOptions options_)
      : source(std::move(source_)), options(std::move(options_)),
        steps(*source, options.samples, options.batch, options.seed, options.shuffle, options.drop_last) {}

  struct Made {
    const augment::Recipe* recipe;
    Shape extents;
    Box block;  // this rank's
  };

  SourcePtr source;
  ViewOptions options;
  Steps steps;
  Transform transform = Transform::none;
  Box whole;  // the whole stored sample
  std::vector<Made> views;
  std::map<std::int64_t, std::vector<LayoutPtr>> layouts;  // by the batch's N: of every view, then of labels and indices
  std::optional<Regions> regions, labels;
  mutable std::atomic<std::int64_t> delivered = 0, waited = 0, worked = 0;  // times in nanoseconds
  std::optional<JobQueue> workers;                                          // destroyed first

  const std::vector<LayoutPtr>& layouts_for(std::int64_t n);
  Shape shape(std::size_t view, std::int64_t n) const {
    const auto& e = views[view].extents;
    return {n, e[0], e[1], e[2], source->channels()};
  }
  std::shared_ptr<Fetch> start(std::int64_t epoch, const std::vector<std::int64_t>& order, std::int64_t step);
  ViewBatch finish(Fetch& fetch);
  void prepare(Fetch& fetch, std::size_t item, std::int64_t epoch) const;
};

struct ViewLoader::Fetch {
  struct Item {
    std::int64_t sample = 0;
    RegionPtr region, labels;
    bool finite = true;
    std::future<void> done;
  };
  ViewBatch batch;
  std::vector<Item> items;

  // Workers write into it, so its destructor waits for them.
  ~Fetch() {
    for (auto& item : items)
      if (item.done.valid()) item.done.wait();
  }
};

const std::vector<LayoutPtr>& ViewLoader::State::layouts_for(std::int64_t n) {
  auto& found = layouts[n];
  if (found.empty()) {
    for (std::size_t v = 0; v < views.size(); ++v)
      found.push_back(options.grid ? input_layout(options.grid, shape(v, n)) : nullptr);
    found.push_back(options.grid ? split_layout(options.grid, Shape{n}, {0, -1, -1, -1}) : nullptr);
  }
  return found;
}

std::shared_ptr<ViewLoader::Fetch> ViewLoader::State::start(std::int64_t epoch, const std::vector<std::int64_t>& order,
                                                            std::int64_t step) {
  auto fetch = std::make_shared<Fetch>();
  const auto first = step * options.batch;
  const auto n = std::min(options.batch, static_cast<std::int64_t>(order.size()) - first);
  const auto& layout = layouts_for(n);
  std::int64_t begin = 0, end = n;
  if (layout.back()) begin = layout.back()->box().begin[0], end = layout.back()->box().end[0];
  const auto here = end - begin;
  for (std::size_t v = 0; v < views.size(); ++v) {
    const auto e = views[v].block.extents();
    const Tensor x({Shape{here, e[0], e[1], e[2], source->channels()}, DType::float32}, DeviceKind::cpu);
    fetch->batch.x.push_back(layout[v] ? x.with_layout(layout[v]) : x);
  }
  fetch->items.resize(static_cast<std::size_t>(here));
  for (std::size_t i = 0; i < fetch->items.size(); ++i) {
    auto& item = fetch->items[i];
    item.sample = order[static_cast<std::size_t>(first + begin) + i];
    Reads reads;
    if (labels) item.labels = labels->get(item.sample, whole, reads);
    item.region = regions->get(item.sample, whole, reads);
    reads.start(*source);
  }
  // The batch outlives its jobs, so they may hold its address.
  for (std::size_t i = 0; i < fetch->items.size(); ++i)
    fetch->items[i].done = workers->submit([this, f = fetch.get(), i, epoch] { prepare(*f, i, epoch); });
  return fetch;
}

void ViewLoader::State::prepare(Fetch& fetch, std::size_t i, std::int64_t epoch) const {
  auto& item = fetch.items[i];
  const auto ready = item.region->ready;  // each thread needs its own copy
  ready.get();
  const auto start = Clock::now();
  augment::Sample stored(whole.end, source->channels());
  Piece piece;
  piece.box = whole;
  copy_piece(piece, {item.region->box, source->type(), item.region->bytes.get()}, whole.end, source->channels(), transform,
             DType::float32, stored.values.data(), [&] { return source->name_of_sample(item.sample); });
  item.finite = !is_floating(source->type()) || all_finite(stored.values);
  // Streams 0 and 1 of an epoch are the order and the flips of loaders.
  const auto random =
      Philox{options.seed, static_cast<std::uint64_t>(epoch)}.child(3).child(static_cast<std::uint64_t>(item.sample));
  for (std::size_t v = 0; v < views.size(); ++v) {
    const auto& view = views[v];
    augment::Sample sample = stored;
    view.recipe->apply(sample, random.child(v));
    require(sample.extents == view.extents && sample.channels == stored.channels, "[data] '{}' made extents {} from {}, not {}",
            view.recipe->text(), sample.extents, whole.end, view.extents);
    const auto values = view.block.elements() * sample.channels;
    cut(sample, view.block, reinterpret_cast<float*>(fetch.batch.x[v].raw()) + static_cast<std::int64_t>(i) * values);
  }
  worked += static_cast<std::int64_t>(1e9 * seconds_since(start));
}

ViewBatch ViewLoader::State::finish(Fetch& fetch) {
  const auto start = Clock::now();
  auto& batch = fetch.batch;
  const auto here = static_cast<std::int64_t>(fetch.items.size());
  const auto& layout = layouts_for(batch.x[0].layout() ? batch.x[0].layout()->global[0] : here).back();
  const auto vector = [&] { return Tensor({Shape{here}, DType::int64}, DeviceKind::cpu); };
  for (std::int64_t t = 0; labels && t < source->target_type().shape.elements(); ++t) batch.labels.push_back(vector());
  std::vector<std::int64_t> row(batch.labels.size());
  batch.indices = vector();
  for (std::size_t i = 0; i < fetch.items.size(); ++i) {
    auto& item = fetch.items[i];
    item.done.get();
    batch.indices.mutable_data<std::int64_t>()[i] = item.sample;
    if (item.labels) {
      item.labels->ready.get();
      convert(item.labels->bytes.get(), source->target_type().type, static_cast<std::int64_t>(row.size()), DType::int64,
              row.data());
    }
    for (std::size_t t = 0; t < row.size(); ++t) batch.labels[t].mutable_data<std::int64_t>()[i] = row[t];
    if (!item.finite && batch.bad_sample < 0)
      batch.bad_sample = item.sample, batch.bad_name = source->name_of_sample(item.sample);
  }
  const auto finished = [&](Tensor& tensor, const LayoutPtr own) {
    tensor = constant(options.device == DeviceKind::cuda ? detail::copied(tensor, options.device) : tensor);
    if (own) tensor = tensor.with_layout(own);
  };
  for (auto& x : batch.x) finished(x, x.layout());
  for (auto& labels : batch.labels) finished(labels, layout);
  finished(batch.indices, layout);
  waited += static_cast<std::int64_t>(1e9 * seconds_since(start)), delivered += here;
  return std::move(batch);
}

// ---- ViewLoader

ViewLoader::ViewLoader(SourcePtr source, ViewOptions options) {
  require(source != nullptr, "[data] a loader needs a source");
  require(options.ahead >= 0, "[data] {} batches cannot be prepared ahead", options.ahead);
  state_ = std::make_shared<State>(std::move(source), std::move(options));
  auto& s = *state_;
  const auto& o = s.options;
  s.transform = o.transform == Transform::of_source ? s.source->transform() : o.transform;
  require_same_extents(*s.source, "views need samples of one size");
  s.whole = s.source->whole();
  for (const auto& view : o.views) {
    require(view.count >= 1, "[data] {} views of '{}'", view.count, view.recipe.text());
    const auto extents = view.recipe.extents(s.source->extents());
    for (int k = 0; k < view.count; ++k) s.views.push_back({&view.recipe, extents, {Shape{0, 0, 0}, extents}});
  }
  require(!s.views.empty(), "[data] a batch needs at least one view");
  if (o.grid)
    for (std::size_t v = 0; v < s.views.size(); ++v) {
      require_planes(o.grid, s.shape(v, o.batch));
      const auto box = s.layouts_for(o.batch)[v]->box();
      for (int a = 0; a < 3; ++a) s.views[v].block.begin[a] = box.begin[a + 1], s.views[v].block.end[a] = box.end[a + 1];
    }
  s.regions.emplace(s.source, Regions::Part::values, s.whole, s.steps.samples.size(), o.cache_bytes, o.grid);
  if (s.source->has_classes() && !s.source->target_type().per_cell)
    s.labels.emplace(s.source, Regions::Part::targets, s.whole, s.steps.samples.size(), s.regions->left(), o.grid);
  s.workers.emplace(o.workers);
}

const Source& ViewLoader::source() const { return *state_->source; }
const ViewOptions& ViewLoader::options() const { return state_->options; }
std::int64_t ViewLoader::samples() const { return state_->steps.samples_per_epoch(); }
std::int64_t ViewLoader::steps() const { return state_->steps.count(); }
int ViewLoader::views() const { return static_cast<int>(state_->views.size()); }
const augment::Recipe& ViewLoader::recipe(int view) const {
  return *state_->views[static_cast<std::size_t>(checked_dimension("data", view, views()))].recipe;
}
Shape ViewLoader::shape(int view) const {
  return state_->shape(static_cast<std::size_t>(checked_dimension("data", view, views())), state_->options.batch);
}
LayoutPtr ViewLoader::layout(int view) const {
  return state_->layouts_for(state_->options.batch)[static_cast<std::size_t>(checked_dimension("data", view, views()))];
}

std::string ViewLoader::text() const {
  std::string result;
  for (const auto& view : state_->options.views)
    result += fmt::format("{}{} x ({})", result.empty() ? "" : " + ", view.count, view.recipe.text());
  return result;
}

Throughput ViewLoader::throughput() const {
  return {state_->delivered, 1e-9 * static_cast<double>(state_->waited), 1e-9 * static_cast<double>(state_->worked)};
}

std::vector<std::int64_t> ViewLoader::samples_of(std::int64_t epoch, std::int64_t step) const {
  return state_->steps.samples_of(epoch, step);
}

ViewBatch ViewLoader::batch(std::int64_t epoch, std::int64_t step) const {
  require(step >= 0 && step < steps(), "[data] step {} of {}", step, steps());
  return state_->finish(*state_->start(epoch, state_->steps.order(epoch), step));
}

Batches<ViewBatch> ViewLoader::epoch(std::int64_t epoch, std::int64_t first) const {
  require(first >= 0 && first <= steps(), "[data] an epoch of {} batches cannot begin after {} batches", steps(), first);
  // Batches in preparation are destroyed before the state that their workers use.
  struct Row {
    std::shared_ptr<State> state;
    std::vector<std::int64_t> order;
    std::deque<std::shared_ptr<Fetch>> fetches{};
    std::int64_t started = 0;
  };
  auto row = std::make_shared<Row>(Row{.state = state_, .order = state_->steps.order(epoch), .started = first});
  return {steps(),
          [row, epoch](std::int64_t step) {
            auto& s = *row->state;
            for (; row->started < std::min(s.steps.count(), step + 1 + s.options.ahead); ++row->started)
              row->fetches.push_back(s.start(epoch, row->order, row->started));
            const auto fetch = row->fetches.front();
            row->fetches.pop_front();
            return s.finish(*fetch);
          },
          first};
}

void require_finite(const ViewBatch& batch, const Communicator& comm) {
  auto& transport = comm.transport();
  if (!transport.can_ask()) return;
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<std::int64_t> bad(ranks, batch.bad_sample);
  transport.allgather(&batch.bad_sample, bad.data(), std::vector<std::int64_t>(ranks, 1), DType::int64);
  const auto found = std::find_if(bad.begin(), bad.end(), [](std::int64_t sample) { return sample >= 0; });
  if (found == bad.end()) return;
  const auto rank = static_cast<int>(found - bad.begin());
  std::string name = batch.bad_name;
  auto length = static_cast<std::int64_t>(name.size());
  transport.bcast(&length, 1, DType::int64, rank);
  name.resize(static_cast<std::size_t>(length));
  if (length > 0) transport.bcast(name.data(), length, DType::uint8, rank);
  fail("[data] sample {} is not finite: {}", *found, name);
}

}  // namespace mpigrad::data
