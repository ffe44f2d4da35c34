#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "framework/base/job_queue.h"
#include "framework/tensor/random.h"
#include "models/data/augment/geometry.h"
#include "models/data/sources/bytes.h"
#include "models/data/volumes/volumes.h"
#include "models/evaluate/segmentation_metrics.h"
#include "models/evaluate/sliding_window.h"
#include "models/trainer/segmentation/parts.h"

namespace mpigrad::trainer::segmenting {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

// Extents, mm between cells and labels of a sample in its file; `turned`: its extents after turning, before resampling.
struct Stored {
  Shape extents, turned;
  std::array<double, 3> spacing{1, 1, 1};
  std::vector<std::int32_t> labels;
};

Stored stored_of(const data::Source& source, std::int64_t sample, bool with_labels) {
  Stored result{source.extents_of(sample), source.extents_of(sample), {1, 1, 1}, {}};
  if (const auto* folder = dynamic_cast<const data::VolumeFolder*>(&source)) {
    const auto& header = folder->header(sample);
    result.extents = header.extents, result.turned = folder->turned_header(sample).extents, result.spacing = header.spacing;
    if (with_labels) result.labels = folder->stored_labels(sample);
    return result;
  }
  if (!with_labels) return result;
  const auto box = source.whole_of(sample);
  const auto type = source.target_type().type;
  std::vector<std::byte> bytes(static_cast<std::size_t>(box.elements() * size_of(type)));
  source.queue().run([&] { source.read_targets(sample, box, bytes.data()); });
  std::vector<double> values(static_cast<std::size_t>(box.elements()));
  data::convert(bytes.data(), type, box.elements(), DType::float64, values.data());
  result.labels.assign(values.begin(), values.end());
  return result;
}

// The classes at the cells of the turned volume, from the probabilities [D, H, W, K] of the resampled one.
std::vector<std::int32_t> labels_at(const Tensor& probabilities, const Shape& stored) {
  const auto& shape = probabilities.shape();
  const Shape seen{shape[0], shape[1], shape[2]};
  if (seen == stored) return segmentation::most_likely(probabilities).to_vector<std::int32_t>();
  augment::Sample sample;
  sample.extents = seen, sample.channels = shape[3], sample.values = probabilities.to_vector<float>();
  auto resized = augment::resized(sample, augment::whole(seen), stored, augment::Filter::linear);
  const auto there = Tensor::over(resized.values.data(), {stored[0], stored[1], stored[2], shape[3]}, DType::float32);
  return segmentation::most_likely(there).to_vector<std::int32_t>();
}

// The same in the file's order of cells.
std::vector<std::int32_t> in_file(const data::Source& source, std::int64_t sample, std::vector<std::int32_t> labels) {
  const auto* folder = dynamic_cast<const data::VolumeFolder*>(&source);
  return folder == nullptr ? labels : folder->labels_in_file(sample, std::move(labels));
}

// True and predicted classes in which ignored cells are background, and the number of these cells.
std::tuple<std::vector<std::int32_t>, std::vector<std::int32_t>, std::int64_t> counted_cells(const Segmented& s) {
  std::tuple result{s.truth, s.predicted, std::int64_t{0}};
  auto& [truth, predicted, ignored] = result;
  for (std::size_t i = 0; i < truth.size(); ++i)
    if (truth[i] == data::ignored_label) truth[i] = predicted[i] = 0, ++ignored;
  return result;
}

Case score(const Segmented& s, const Stored& stored, std::int64_t classes, const SegmentOptions& o) {
  Case result{.sample = s.sample, .dice = {}, .jaccard = {}, .hausdorff = {}, .within = {}, .truth = {}, .predicted = {}};
  const double cell = stored.spacing[0] * stored.spacing[1] * stored.spacing[2];
  const auto& [truth, predicted, ignored] = counted_cells(s);
  auto counts = segmentation::count_classes(truth, predicted, classes);
  counts[0].both -= ignored, counts[0].predicted -= ignored, counts[0].truth -= ignored;
  for (std::int64_t c = 0; c < classes; ++c) {
    const auto& count = counts[static_cast<std::size_t>(c)];
    result.dice.push_back(segmentation::dice(count).value_or(none));
    result.jaccard.push_back(segmentation::jaccard(count).value_or(none));
    segmentation::SurfaceAgreement surfaces{none, none};
    if (o.surfaces && c > 0)
      surfaces = segmentation::surface_agreement(truth, predicted, stored.extents, static_cast<std::int32_t>(c), stored.spacing,
                                                 o.tolerance)
                     .value_or(surfaces);
    result.hausdorff.push_back(surfaces.hausdorff95), result.within.push_back(surfaces.within_tolerance);
    result.truth.push_back(static_cast<double>(count.truth) * cell);
    result.predicted.push_back(static_cast<double>(count.predicted) * cell);
  }
  return result;
}

// Combines the cases of all groups, each of which knows its own.
void gather(const Communicator& world, std::vector<Case>& cases, const std::vector<bool>& own) {
  std::vector<double> numbers;
  const auto lists = {&Case::dice, &Case::jaccard, &Case::hausdorff, &Case::within, &Case::truth, &Case::predicted};
  for (std::size_t i = 0; i < cases.size(); ++i)
    for (const auto list : lists)
      for (const double value : cases[i].*list) numbers.push_back(own[i] ? value : 0);
  world.transport().allreduce(numbers.data(), numbers.data(), static_cast<std::int64_t>(numbers.size()), DType::float64,
                              CombineOp::sum);
  auto next = numbers.begin();
  for (auto& each : cases)
    for (const auto list : lists)
      for (double& value : each.*list) value = *next++;
}

}  // namespace

std::vector<Case> segment(const Communicator& world, nn::Module& net, const Volumes& volumes, const Problem& problem,
                          const std::vector<std::int64_t>& samples, const SegmentOptions& o) {
  const auto& all = *o.grid;
  // The ranks that share samples, as a grid of their own.
  const auto group = make_grid(all.along({1, 2, 3}), {1, all.extents[1], all.extents[2], all.extents[3]});
  const auto groups = static_cast<std::size_t>(all.extents[0]);
  const auto mine = static_cast<std::size_t>(all.coordinates(all.rank)[0]);
  const segmentation::SlidingWindowOptions options{
      .window = problem.extents, .overlap = o.overlap, .batch = o.windows, .grid = group, .dtype = o.dtype};
  std::vector<Case> cases;
  std::vector<bool> own;
  const std::vector<double> empty(static_cast<std::size_t>(problem.outputs));
  trainer::together(world, [&] {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      cases.push_back({samples[i], empty, empty, empty, empty, empty, empty}), own.push_back(false);
      if (i % groups != mine) continue;
      const Tensor probabilities = segmentation::sliding_window(net, *volumes.seen, samples[i], options);
      const auto* first = probabilities.data<float>();
      require(std::all_of(first, first + probabilities.elements(), [](float p) { return std::isfinite(p); }),
              "[{}] what the network predicts of {} is not finite: its weights or --precision cannot be used", o.program,
              volumes.seen->name_of_sample(samples[i]));
      // From here on an error concerns one rank; the others of its group would continue without it, so the group throws together.
      mpigrad::together(group->world(), [&] {
        if (group->rank != 0) return;
        auto stored = stored_of(*volumes.stored, samples[i], o.scored);
        Segmented s{.sample = samples[i], .predicted = {}, .truth = {}};
        s.predicted = in_file(*volumes.stored, samples[i], labels_at(probabilities, stored.turned));
        if (o.largest_component) s.predicted = segmentation::largest_components(s.predicted, stored.extents, problem.outputs);
        if (o.scored) {
          s.truth = std::move(stored.labels);
          cases.back() = score(s, stored, problem.outputs, o), own.back() = true;
        }
        if (o.done) o.done(s);
      });
    }
  });
  if (!o.scored) return {};
  gather(world, cases, own);
  return cases;
}

Mean mean_of(const std::vector<Case>& cases, std::vector<double> Case::*values, std::size_t label) {
  Mean result;
  RunningMean mean;
  for (const auto& each : cases)
    if (const double value = (each.*values)[label]; std::isnan(value)) ++result.undefined;
    else mean.add(value);
  result.value = mean.mean();
  return result;
}

double mean_dice(const std::vector<Case>& cases, std::int64_t classes) {
  RunningMean mean;
  for (std::size_t c = 1; c < static_cast<std::size_t>(classes); ++c)
    if (const double value = mean_of(cases, &Case::dice, c).value; !std::isnan(value)) mean.add(value);
  return mean.mean();
}

std::array<double, 2> dice_interval(const std::vector<Case>& cases, std::int64_t classes) {
  constexpr std::size_t resamples = 2000;
  if (cases.size() < 2) return {none, none};
  std::vector<double> means;
  std::vector<Case> drawn(cases.size());
  for (std::size_t i = 0; i < resamples; ++i) {
    const Philox random{.key = 1, .stream = i};
    for (std::size_t k = 0; k < drawn.size(); ++k) drawn[k].dice = cases[random.below(k, cases.size())].dice;
    if (const double mean = mean_dice(drawn, classes); !std::isnan(mean)) means.push_back(mean);
  }
  if (means.empty()) return {none, none};
  std::sort(means.begin(), means.end());
  const auto at = [&](double part) { return means[static_cast<std::size_t>(part * static_cast<double>(means.size() - 1))]; };
  return {at(0.025), at(0.975)};
}

}  // namespace mpigrad::trainer::segmenting
