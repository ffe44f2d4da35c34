#include "examples/tools/universe/spectrum_regression.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "examples/tools/universe/fft.h"
#include "examples/tools/universe/spectrum.h"
#include "framework/base/job_queue.h"
#include "framework/base/text_bounds.h"
#include "models/data/sources/bytes.h"
#include "models/trainer/tool/together.h"
#include "ops/kernel/parallel_errors.h"

namespace mpigrad::universe {
namespace {

// Above that a fit takes more than seconds, and a note more than megabytes.
constexpr std::int64_t most_weights = std::int64_t{1} << 18;

std::int64_t features_of(std::int64_t side, std::int64_t channels) {
  return channels * (static_cast<std::int64_t>(spectrum_edges(side).size()) + 2);
}

// Why no sample of the source has statistics; empty: they may have.
std::string obstacle_of(const data::Source& source) {
  const auto side = source.extents()[0];
  if (side < 2 || side > largest_side) return fmt::format("volumes of {}^3 cells are not of 2^3 to {}^3", side, largest_side);
  const auto features = features_of(side, source.channels()), targets = static_cast<std::int64_t>(source.target_names().size());
  if (features * std::max(features, targets) > most_weights)
    return fmt::format("{} numbers of each volume for {} targets are too many", features, targets);
  return "";
}

// Memory of one thread for the samples that it reads, one after the other.
struct SampleRoom {
  Field<std::byte> stored{};
  RealField values{};

  std::span<const double> read(const data::Source& source, std::int64_t sample) {
    const auto count = source.extents().elements() * source.channels();
    stored.resize(static_cast<std::size_t>(count * size_of(source.type()))), values.resize(static_cast<std::size_t>(count));
    source.queue().run([&] { source.read(sample, source.whole(), stored.data()); });
    data::convert(stored.data(), source.type(), count, DType::float64, values.data());
    return values;
  }
};

// Rows of `width` numbers, row(i, room), one for each sample in their order, the same on all ranks: every rank makes those of
// every size-th, its threads side by side.
template <class Row>
std::vector<double> rows_of(const Communicator& world, std::size_t samples, std::size_t width, const Row& row) {
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<std::int64_t> counts;
  for (std::size_t r = 0; r < ranks; ++r) counts.push_back(static_cast<std::int64_t>((samples + ranks - 1 - r) / ranks * width));
  std::vector<double> mine(static_cast<std::size_t>(counts[static_cast<std::size_t>(world.rank())]));
  std::vector<double> gathered(samples * width), rows(samples * width);
  tool::together(world, [&] {
    cpu::ParallelErrors errors;
#pragma omp parallel
    {
      SampleRoom room;
#pragma omp for schedule(dynamic)
      for (auto i = static_cast<std::size_t>(world.rank()); i < samples; i += ranks)
        errors.guard([&] {
          const std::vector<double> numbers = row(i, room);
          std::copy_n(numbers.begin(), width, mine.begin() + static_cast<std::ptrdiff_t>(i / ranks * width));
        });
    }
    errors.rethrow();
  });
  world.transport().allgather(mine.data(), gathered.data(), counts, DType::float64);
  auto from = gathered.begin();
  for (std::size_t r = 0; r < ranks; ++r)
    for (auto i = r; i < samples; i += ranks, from += static_cast<std::ptrdiff_t>(width))
      std::copy_n(from, width, rows.begin() + static_cast<std::ptrdiff_t>(i * width));
  return rows;
}

// The features of some samples of a source without an obstacle; or nothing, and the channel that has no spectrum.
BaselinePredictions statistics_of(const Communicator& world, const data::Source& source,
                                  const std::vector<std::int64_t>& samples) {
  const auto channels = source.channels(), side = source.extents()[0];
  const VolumeStatistics statistics(side);
  const auto width = static_cast<std::size_t>(features_of(side, channels));
  auto rows = rows_of(world, samples.size(), width,
                      [&](std::size_t i, SampleRoom& room) { return statistics(room.read(source, samples[i]), channels); });
  const auto flaw = std::find_if(rows.begin(), rows.end(), [](double x) { return !std::isfinite(x); });
  if (flaw == rows.end()) return {.values = std::move(rows)};
  const auto at = static_cast<std::size_t>(flaw - rows.begin());
  return {.missing = fmt::format("channel {} of {} has no power spectrum: its mean is not positive, or it does not vary",
                                 static_cast<std::int64_t>(at % width) / statistics.per_channel() + 1,
                                 std::filesystem::path(source.name_of_sample(samples[at / width])).filename().string())};
}

std::size_t most_volumes(std::int64_t side) { return static_cast<std::size_t>(most_cells / (side * side * side)); }

}  // namespace

Baseline fit_baseline(const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples,
                      std::vector<double>* predicted) {
  Baseline baseline{.side = source.extents()[0], .channels = source.channels(), .missing = obstacle_of(source)};
  if (samples.size() < 2) baseline.missing = "a regression takes two training samples";
  if (!baseline.missing.empty()) return baseline;
  const auto count = std::min(samples.size(), most_volumes(baseline.side));
  std::vector<std::int64_t> chosen;
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(samples[i * samples.size() / count]);
  const auto features = statistics_of(world, source, chosen);
  const auto targets =
      rows_of(world, count, source.target_names().size(), [&](std::size_t i, SampleRoom&) { return source.targets(chosen[i]); });
  baseline.missing = features.missing;
  if (!baseline.missing.empty()) return baseline;
  baseline.ridge = fit_ridge(features.values, targets, static_cast<std::int64_t>(count));
  if (predicted && count == samples.size()) *predicted = baseline.ridge(features.values);
  return baseline;
}

BaselinePredictions predict_baseline(const Communicator& world, const data::Source& source,
                                     const std::vector<std::int64_t>& samples, const Baseline& baseline) {
  if (!baseline.missing.empty()) return {.missing = baseline.missing};
  if (source.extents()[0] != baseline.side || source.channels() != baseline.channels)
    return {.missing = fmt::format("the regression is of volumes of {}^3 x {}, these are {}^3 x {}", baseline.side,
                                   baseline.channels, source.extents()[0], source.channels())};
  if (samples.size() > most_volumes(baseline.side))
    return {.missing = fmt::format("it would take long for {} volumes of {}^3; it is made for {}", samples.size(), baseline.side,
                                   most_volumes(baseline.side))};
  auto features = statistics_of(world, source, samples);
  if (features.missing.empty()) features.values = baseline.ridge(features.values);
  return features;
}

std::string to_note(const Baseline& b) {
  nlohmann::ordered_json document;
  if (!b.missing.empty()) document = {{"missing", b.missing}};
  else
    document = {{"side", b.side},         {"channels", b.channels},   {"mean", b.ridge.mean},
                {"scale", b.ridge.scale}, {"offset", b.ridge.offset}, {"weight", b.ridge.weight}};
  return document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Baseline baseline_of(const std::string& weights, const CheckpointInfo& info, std::size_t targets) {
  const auto note = info.notes.find(baseline_note);
  if (note == info.notes.end()) return {.missing = "the weights are older than this regression; train again to have it"};
  Baseline b;
  auto& r = b.ridge;
  const auto excess = excess_of_json(note->second);
  require(excess.empty(), "[weights] {}: the note '{}' {}", weights, baseline_note, excess);
  try {
    const auto document = nlohmann::ordered_json::parse(note->second);
    if (document.contains("missing")) document.at("missing").get_to(b.missing);
    else {
      document.at("side").get_to(b.side), document.at("channels").get_to(b.channels);
      document.at("mean").get_to(r.mean), document.at("scale").get_to(r.scale);
      document.at("offset").get_to(r.offset), document.at("weight").get_to(r.weight);
    }
  } catch (const nlohmann::ordered_json::exception&) {
    fail("[weights] {}: the note '{}' holds no regression", weights, baseline_note);
  }
  if (!b.missing.empty()) return b;
  bool sound = b.side >= 2 && b.side <= largest_side && b.channels >= 1 && b.channels <= most_weights;
  const auto features = sound ? static_cast<std::size_t>(features_of(b.side, b.channels)) : 0;
  sound &= r.mean.size() == features && r.scale.size() == features && r.offset.size() == targets &&
           r.weight.size() == features * targets;
  for (const auto* numbers : {&r.mean, &r.scale, &r.offset, &r.weight})
    sound &= std::all_of(numbers->begin(), numbers->end(), [](double x) { return std::isfinite(x); });
  sound &= std::all_of(r.scale.begin(), r.scale.end(), [](double x) { return x > 0; });
  require(sound, "[weights] {}: the note '{}' holds no regression", weights, baseline_note);
  return b;
}

trainer::Reference spectrum_reference() {
  const auto predict = [](const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples,
                          const std::string& note, const std::string& weights) -> trainer::Reference::Predicted {
    CheckpointInfo info;
    info.notes[baseline_note] = note;
    auto found = predict_baseline(world, source, samples, baseline_of(weights, info, source.target_names().size()));
    return {.values = std::move(found.values), .missing = std::move(found.missing)};
  };
  return {
      .name = "spectrum",
      .label = "P(k)",
      .help = "ridge regression on binned power spectra and one-point numbers of the same universes, fitted to the training set",
      .note = baseline_note,
      .fit = [](const Communicator& world, const data::Source& source,
                const std::vector<std::int64_t>& samples) { return to_note(fit_baseline(world, source, samples)); },
      .predict = predict};
}

}  // namespace mpigrad::universe
