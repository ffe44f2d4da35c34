#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "framework/base/job_queue.h"
#include "models/data/sources/bytes.h"
#include "models/data/volumes/volumes.h"
#include "models/evaluate/segmentation_metrics.h"
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

// Labels of the turned volume in the file's order of cells.
std::vector<std::int32_t> in_file(const data::Source& source, std::int64_t sample, std::vector<std::int32_t> labels) {
  const auto* folder = dynamic_cast<const data::VolumeFolder*>(&source);
  return folder == nullptr ? labels : folder->labels_in_file(sample, std::move(labels));
}

// `labels` with background in ignored cells.
std::vector<std::int32_t> without_ignored(const Segmented& s, std::vector<std::int32_t> labels) {
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (s.truth[i] == data::ignored_label) labels[i] = 0;
  return labels;
}

// True and predicted classes in which ignored cells are background, and the number of these cells.
std::tuple<std::vector<std::int32_t>, std::vector<std::int32_t>, std::int64_t> counted_cells(const Segmented& s) {
  const auto ignored = std::count(s.truth.begin(), s.truth.end(), data::ignored_label);
  return {without_ignored(s, s.truth), without_ignored(s, s.predicted), std::int64_t{ignored}};
}

// Keeps only the largest components of the classes or targets that are named; other cells of a target are of no class.
std::vector<std::int32_t> with_largest(std::vector<std::int32_t> labels, const Shape& extents, const Problem& problem,
                                       const SegmentOptions& o) {
  if (o.targets.empty()) return segmentation::largest_components(labels, extents, problem.outputs, o.largest);
  for (const auto target : o.largest) {
    const auto cells = cells_of(o.targets[static_cast<std::size_t>(target - 1)], labels);
    const auto kept = segmentation::largest_components(cells, extents, 2);
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (cells[i] != kept[i]) labels[i] = 0;
  }
  return labels;
}

// `classes`: scored_classes().
Case score(const Segmented& s, const Stored& stored, std::int64_t classes, const SegmentOptions& o) {
  Case result{.sample = s.sample};
  const double cell = stored.spacing[0] * stored.spacing[1] * stored.spacing[2];
  const auto& [truth, predicted, ignored] = counted_cells(s);
  const auto add = [&](const segmentation::ClassCounts& count, const std::vector<std::int32_t>& t,
                       const std::vector<std::int32_t>& p, std::int64_t label) {
    result.dice.push_back(segmentation::dice(count).value_or(none));
    result.jaccard.push_back(segmentation::jaccard(count).value_or(none));
    segmentation::SurfaceAgreement surfaces{none, none};
    if (o.final && label > 0)
      surfaces =
          segmentation::surface_agreement(t, p, stored.extents, static_cast<std::int32_t>(label), stored.spacing, o.tolerance)
              .value_or(surfaces);
    result.hausdorff.push_back(surfaces.hausdorff95), result.within.push_back(surfaces.within_tolerance);
    result.truth.push_back(static_cast<double>(count.truth) * cell);
    result.predicted.push_back(static_cast<double>(count.predicted) * cell);
    const auto there = static_cast<double>(count.truth);
    result.volume_difference.push_back(there > 0 ? std::abs(static_cast<double>(count.predicted) / there - 1) : none);
  };
  result.component_dice.assign(static_cast<std::size_t>(classes) + o.regions.size(), none);
  if (o.targets.empty()) {
    auto counts = segmentation::count_classes(truth, predicted, classes);
    counts[0].both -= ignored, counts[0].predicted -= ignored, counts[0].truth -= ignored;
    for (std::int64_t c = 0; c < classes; ++c) add(counts[static_cast<std::size_t>(c)], truth, predicted, c);
    if (o.final) {
      // Components of the whole prediction, as post-processing takes them.
      const auto largest = segmentation::count_classes(
          truth, without_ignored(s, segmentation::largest_components(s.predicted, stored.extents, classes)), classes);
      for (std::size_t c = 1; c < static_cast<std::size_t>(classes); ++c)
        result.component_dice[c] = segmentation::dice(largest[c]).value_or(none);
    }
  } else {
    add({}, truth, predicted, 0);  // what is in no target has no score
  }
  const auto add_region = [&](const Region& region, double* component_dice) {
    const auto t = cells_of(region, truth), p = cells_of(region, predicted);
    add(segmentation::count_classes(t, p, 2)[1], t, p, 1);
    if (!o.final || component_dice == nullptr) return;
    const auto components = segmentation::largest_components(cells_of(region, s.predicted), stored.extents, 2);
    const auto largest = segmentation::count_classes(t, without_ignored(s, components), 2);
    *component_dice = segmentation::dice(largest[1]).value_or(none);
  };
  for (std::size_t r = 0; r < o.targets.size(); ++r) add_region(o.targets[r], &result.component_dice[r + 1]);
  for (const auto& region : o.regions) add_region(region, nullptr);
  return result;
}

const std::vector<std::vector<double> Case::*> lists_of_cases{
    &Case::dice,  &Case::jaccard,   &Case::hausdorff,         &Case::within,
    &Case::truth, &Case::predicted, &Case::volume_difference, &Case::component_dice};

// Combines the cases of all groups, each of which knows its own.
void gather(const Communicator& world, std::vector<Case>& cases, const std::vector<bool>& own) {
  std::vector<double> numbers;
  for (std::size_t i = 0; i < cases.size(); ++i)
    for (const auto list : lists_of_cases)
      for (const double value : cases[i].*list) numbers.push_back(own[i] ? value : 0);
  world.transport().allreduce(numbers.data(), numbers.data(), static_cast<std::int64_t>(numbers.size()), DType::float64,
                              CombineOp::sum);
  auto next = numbers.begin();
  for (auto& each : cases)
    for (const auto list : lists_of_cases)
      for (double& value : each.*list) value = *next++;
}

}  // namespace

segmentation::SlidingWindowOptions window_options(const SegmentOptions& o, const Problem& problem) {
  const auto& all = *o.grid;
  // The ranks that share samples, as a grid of their own.
  const auto group = make_grid(all.along({1, 2, 3}), {1, all.extents[1], all.extents[2], all.extents[3]});
  return {.window = problem.extents,
          .overlap = o.overlap,
          .batch = o.windows,
          .grid = group,
          .dtype = o.dtype,
          .mirrored = o.mirrored,
          .sums = o.sums,
          .sigmoid = !o.targets.empty(),
          .written = written_by(o.targets)};
}

std::vector<Case> segment(const Communicator& world, const segmentation::Ensemble& nets, const Volumes& volumes,
                          const Problem& problem, const std::vector<std::int64_t>& samples, const SegmentOptions& o) {
  const auto options = window_options(o, problem);
  const auto& group = *options.grid;
  const auto groups = static_cast<std::size_t>(o.grid->extents[0]);
  const auto mine = static_cast<std::size_t>(o.grid->coordinates(o.grid->rank)[0]);
  std::vector<Case> cases;
  std::vector<bool> own;
  const auto classes = scored_classes(problem, o.targets);
  const std::vector<double> empty(static_cast<std::size_t>(classes) + o.regions.size());
  trainer::together(world, [&] {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      auto& result = cases.emplace_back(Case{.sample = samples[i]});
      for (const auto list : lists_of_cases) result.*list = empty;
      own.push_back(false);
      if (i % groups != mine) continue;
      Stored stored;
      mpigrad::together(group.world(), [&] { stored = stored_of(*volumes.stored, samples[i], false); });
      auto labels = segmentation::sliding_window_classes(nets, *volumes.seen, samples[i], stored.turned, options);
      // From here on an error concerns one rank; the others of its group would continue without it, so the group throws together.
      mpigrad::together(group.world(), [&] {
        if (group.rank != 0) return;
        Segmented s{.sample = samples[i], .predicted = in_file(*volumes.stored, samples[i], std::move(labels)), .truth = {}};
        if (!o.largest.empty()) s.predicted = with_largest(std::move(s.predicted), stored.extents, problem, o);
        if (o.scored) {
          stored = stored_of(*volumes.stored, samples[i], true);
          s.truth = std::move(stored.labels);
          result = score(s, stored, classes, o), own.back() = true;
        }
        if (o.done) o.done(s, o.scored ? mean_dice(result, classes) : none);
      });
    }
  });
  if (!o.scored) return {};
  gather(world, cases, own);
  return cases;
}

}  // namespace mpigrad::trainer::segmenting
