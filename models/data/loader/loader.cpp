#include "models/data/loader/loader.h"

#include <deque>
#include <utility>

#include "framework/base/error.h"
#include "models/data/loader/assembler.h"
#include "models/data/loader/reader.h"
#include "models/data/loader/schedule.h"
#include "models/data/loader/uploader.h"
#include "models/data/sources/hdf5.h"

namespace mpigrad::data {

// Plans, reads, assembles and uploads batches, some of them ahead.
struct Loader::State {
  State(SourcePtr source_, LoaderOptions options_)
      : source(std::move(source_)), options(std::move(options_)), schedule(source, options), reader(source, options, schedule),
        assembler(source, options, schedule), uploader(source, options, schedule, assembler) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // The pass over the samples in which a step of an epoch is, and the step of that pass. Everything else here counts passes.
  struct Place {
    std::int64_t pass, step;
  };
  Place place(std::int64_t epoch, std::int64_t step) const {
    const auto of_pass = schedule.steps().count();
    return {epoch * options.passes + step / of_pass, step % of_pass};
  }
  FetchPtr start(std::int64_t pass, const std::vector<std::int64_t>& order, std::int64_t step, bool ahead = false) {
    auto fetch = schedule.plan(pass, order, step, reader.needs_all());
    reader.read(*fetch, ahead);
    if (ahead) assembler.assemble_ahead(fetch);
    return fetch;
  }
  // True if batches are assembled ahead; batch() does not assemble ahead.
  bool assembles_ahead() const {
    return options.prefetch > 0 && options.assemble_ahead.value_or(options.device == DeviceKind::cuda) && reader.any_thread();
  }
  // Batches of the requested pass that are already being read.
  std::deque<FetchPtr> begun(std::int64_t pass, std::int64_t first);
  // Starts to read the next batch, in addition to `others` batches that are being read.
  void follow(std::size_t others);

  SourcePtr source;
  LoaderOptions options;
  Schedule schedule;
  Reader reader;
  // Consecutive passes follow each other without a gap: while the last batches of one are used, the first of the next are read.
  // Not with a store, whose messages have an order that all ranks know.
  struct Following {
    std::int64_t pass = -1;
    std::vector<std::int64_t> order;
    std::deque<FetchPtr> fetches;
  };
  Following following;
  std::int64_t asked = -1;  // the previously requested pass
  Assembler assembler;
  Uploader uploader;
};

std::deque<FetchPtr> Loader::State::begun(std::int64_t pass, std::int64_t first) {
  const auto last = std::exchange(asked, pass);
  auto found = std::exchange(following, {});
  // Only after two consecutive passes: a loader that reads the same pass again and again, as for tests, would otherwise keep
  // memory while another loader is used.
  if (pass == last + 1 && pass > 0 && !reader.needs_all()) following.pass = pass + 1;
  if (found.pass != pass || first != 0) return {};
  return std::move(found.fetches);
}

void Loader::State::follow(std::size_t others) {
  auto& f = following;
  if (f.pass < 0) return;
  if (f.order.empty()) f.order = schedule.steps().order(f.pass);
  while (others + f.fetches.size() <= static_cast<std::size_t>(options.prefetch) &&
         static_cast<std::int64_t>(f.fetches.size()) < schedule.steps().count())
    f.fetches.push_back(start(f.pass, f.order, static_cast<std::int64_t>(f.fetches.size()), assembles_ahead()));
}

// ---- Loader

Loader::Loader(SourcePtr source, LoaderOptions options) {
  require(source != nullptr, "[data] a loader needs a source");
  require(is_floating(options.dtype), "[data] x must have a floating-point type, not {}", name_of(options.dtype));
  for (const auto dtype : {options.dtype, options.target_dtype.value_or(options.dtype)})
    require(!is_half(dtype), "[data] batches are float32 or float64, not {}: cast them", name_of(dtype));
  require(options.prefetch >= 0, "[data] {} batches cannot be read ahead", options.prefetch);
  require(options.passes > 0, "[data] an epoch needs at least one pass over the samples, not {}", options.passes);
  state_ = std::make_shared<State>(std::move(source), std::move(options));
}

Loader::Loader(const std::filesystem::path& path, LoaderOptions options)
    : Loader(std::make_shared<UniverseSource>(path), std::move(options)) {}

const Source& Loader::source() const { return *state_->source; }
const LoaderOptions& Loader::options() const { return state_->options; }
std::int64_t Loader::samples() const { return state_->options.passes * state_->schedule.steps().samples_per_epoch(); }
std::int64_t Loader::steps() const { return state_->options.passes * state_->schedule.steps().count(); }
Shape Loader::shape() const { return state_->schedule.shape(state_->options.batch); }
LayoutPtr Loader::layout() const {
  const auto& layout = state_->schedule.layouts(state_->options.batch).x;
  return layout ? layout : plain_layout(shape());
}
LayoutPtr Loader::target_layout() const {
  auto& schedule = state_->schedule;
  const auto n = state_->options.batch;
  const auto& layout = schedule.layouts(n).y;
  return layout ? layout : plain_layout(schedule.target_shape(n, schedule.window()));
}

Loader::InStore Loader::stored() const {
  const auto& store = state_->reader.store();
  if (!store) return {};
  const auto& samples = state_->schedule.steps().samples;
  return {store->samples(), store->room_for(samples), static_cast<std::int64_t>(samples.size()), store->bytes()};
}

std::vector<std::int64_t> Loader::samples_of(std::int64_t epoch, std::int64_t step) const {
  require(step >= 0 && step < steps(), "[data] step {} of {}", step, steps());
  const auto place = state_->place(epoch, step);
  return state_->schedule.steps().samples_of(place.pass, place.step);
}

Batch Loader::batch(std::int64_t epoch, std::int64_t step) const {
  require(step >= 0 && step < steps(), "[data] step {} of {}", step, steps());
  const auto place = state_->place(epoch, step);
  return state_->uploader.upload(*state_->start(place.pass, state_->schedule.steps().order(place.pass), place.step));
}

Batches<Batch> Loader::epoch(std::int64_t epoch, std::int64_t first) const {
  const auto begin = state_->place(epoch, first);
  return {steps(),
          [state = state_, epoch, pass = begin.pass, order = state_->schedule.steps().order(begin.pass),
           places = std::shared_ptr<cuda::Uploads::Places>(),
           next = state_->begun(begin.pass, begin.step)](std::int64_t step_of_epoch) mutable {
            if (places) places->step_is_given();
            const auto [its_pass, step] = state->place(epoch, step_of_epoch);
            if (its_pass != pass) pass = its_pass, order = state->schedule.steps().order(pass), next = state->begun(pass, step);
            if (next.empty()) next.push_back(state->start(pass, order, step, state->assembles_ahead()));
            const auto ahead = static_cast<std::size_t>(state->options.prefetch);
            for (auto later = step + static_cast<std::int64_t>(next.size());
                 next.size() <= ahead && later < state->schedule.steps().count(); ++later)
              next.push_back(state->start(pass, order, later, state->assembles_ahead()));
            if (state->asked == pass && step + static_cast<std::int64_t>(next.size()) == state->schedule.steps().count())
              state->follow(next.size());
            const auto fetch = std::move(next.front());
            next.pop_front();
            if (state->options.device != DeviceKind::cuda) return state->uploader.upload(*fetch);
            if (!places) places = std::make_shared<cuda::Uploads::Places>();
            return state->uploader.upload(*fetch, *places);
          },
          first};
}

}  // namespace mpigrad::data
