#pragma once
// The parts of trainer::run_segmentation() (segmentation.h).

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "comm/communicator.h"
#include "models/data/sources/normalised.h"
#include "models/evaluate/sliding_window.h"
#include "models/trainer/infer.h"
#include "models/trainer/run_training.h"
#include "models/trainer/segmentation/regions.h"
#include "models/trainer/segmentation/segmentation.h"

namespace mpigrad::trainer::segmenting {

// Where volumes are, and how they are read.
struct DataOptions {
  std::string group, volume = "volume", label = "label";  // datasets of HDF5 files
  std::string cache{};                                    // a folder (data::VolumesOptions), "": none
};

// A trained network and the data it was trained on, as the weights' file remembers them.
struct Trained {
  Problem problem{};                               // the extents are the window's, the outputs classes; 0: not known yet
  std::optional<std::array<double, 3>> spacing{};  // mm along D, H, W
  // The orientation to which volumes are turned, and the range of spacings to which they are resampled if `spacing` is none
  // (data::VolumesOptions). The note of the training's geometry has them.
  std::string orientation{};
  std::array<double, 3> least_spacing{}, most_spacing{};
  std::string normalisation = "whole";
  std::string interpolation = "linear";  // of values that are resampled: linear or cubic
  std::vector<double> intensities{};     // for `ct`: lowest, highest, mean and deviation of each channel
  std::vector<std::string> label_map{};  // "STORED=CLASS"
  std::vector<std::int64_t> ignored{};   // stored labels of cells that count in nothing
  std::vector<Region> regions{};         // the outputs are of these regions; none: of classes
  std::int64_t label_classes = 0;        // with regions: 1 + the largest class of labels
  bool channel_files = false;            // every channel of a volume is a file
  // The number of classes that labels have.
  std::int64_t classes() const { return regions.empty() ? problem.outputs : label_classes; }
};
// The note has the program's name.
std::string to_note(const SegmentationProgram& program, const Trained& trained);
// Error: the file has no such note, or one that to_note did not write.
Trained trained_of(const SegmentationProgram& program, const std::string& weights, const CheckpointInfo& info);
// The settings for this command's summary.
nlohmann::ordered_json summary_of(const SegmentationProgram& program, const std::string& command, const Problem& problem);

struct TrainOptions : trainer::Options {
  DataOptions source;
  Trained trained;
  std::string loss;
  bool batch_dice = false, background = true;
  std::vector<std::int64_t> window{};
  std::int64_t windows = 1;  // of each volume in an epoch
  std::vector<double> spacing{};
  std::string orientation = "RAS";           // or "stored"
  std::string augment{};                     // augment::parse_recipe
  std::vector<std::string> regions{};        // "NAME=CLASS+CLASS"
  std::vector<std::int64_t> region_order{};  // the class that each writes
  double foreground = 1.0 / 3, overlap = 0.5;
  Division division{};
  bool half_weights = false;
};

struct CheckOptions : trainer::Options {
  DataOptions source;
  Trained trained;
  std::int64_t workers = 0;  // threads of each rank that read files; 0: as many as there are processors for it
};

struct PlanOptions : TrainOptions {
  std::string memory = "8GiB";             // of a rank
  std::int64_t filters = 32, workers = 0;  // workers: as of CheckOptions
  std::vector<std::string> modalities{};   // of each channel; none: those of dataset.json
  std::string file = "plan.toml";
};

// Options of evaluate and predict.
struct InferOptions : trainer::InferOptions {
  DataOptions source;
  double overlap = 0.5;
  std::int64_t windows = 1;
  std::vector<std::string> ensemble{};  // further files of weights
  std::vector<std::string> mirror{};    // axes along which windows are mirrored: depth, height, width
  std::string scores = "float32";       // the type of sums of probabilities, or 16-bit
  double memory = 0;                    // GiB of a rank; 0: what the machine has
  bool largest_component = false, predictions = false;
  std::string postprocessing{};        // a file that postprocessing_file is
  std::vector<std::string> regions{};  // "NAME=CLASS+CLASS"
  double tolerance = 1;                // mm between surfaces
};

// The training's loss of scores and labels, as loss.name, loss.batch_dice and loss.background say, or that of regions.
// UsageError: the loss has no such options, or cannot leave cells out, or is not of regions.
LossFunction loss_of(const SegmentationProgram& program, const TrainOptions& options, const Trained& trained);
// The loss of the network's result, of all its levels if it has deep supervision.
LossFunction supervised(nn::Module& net, const LossFunction& loss);
// The cost of a training step on the batch, loss included.
Description step_of(const SegmentationProgram& program, const TrainOptions& options, const Problem& problem,
                    const GridExtents& grid);
// Each function returns the exit code. Collective.
int describe(const Communicator& world, const SegmentationProgram& program, const TrainOptions& options);
int train(const Communicator& world, const SegmentationProgram& program, const TrainOptions& options);
int infer(const Communicator& world, const SegmentationProgram& program, InferOptions options);
int check(const Communicator& world, const CheckOptions& options);
int plan(const Communicator& world, const SegmentationProgram& program, PlanOptions options);

// The keys of `train`. Sets the settings to their defaults.
void add_train_keys(Keys& keys, const SegmentationProgram& program, TrainOptions& options);
// The bytes that a text such as 8GiB or 500 MB says; 0: it says none.
std::int64_t bytes_of_text(const std::string& text);
// Sets trained.regions from labels.regions and labels.region_order. UsageError: they are no regions.
void take_regions(TrainOptions& options);
// D, H, W of a window. UsageError: other than one number or three.
Shape window_of(const std::vector<std::int64_t>& window);

// ---- data

// Volumes as stored, for the geometry of the files written, and as the network reads them.
struct Volumes {
  data::SourcePtr stored, seen;
};
// `path`: a folder of images/ and labels/ or imagesTr/ and labelsTr/ (files of models/data/volumes/volume_formats.h), a folder of
// volumes or one volume (without labels), or HDF5. UsageError: errors of the sources; missing labels if `wants_labels`.
// Collective.
Volumes open(const Communicator& world, const std::string& path, const DataOptions& options, bool wants_labels,
             const Trained& trained);
// [D, H, W] of a sample in its file.
Shape stored_extents(const Volumes& volumes, std::int64_t sample);
// Says on rank 0, a line for each case: volumes that are resampled to the spacings of the training, volumes with a spacing that
// is not that of their affine map, volumes whose axes are not at right angles, and, if `of_training`, volumes that do not say
// their orientation.
void warn_of_geometry(const Communicator& world, const Volumes& volumes, const Trained& trained, bool of_training);
// Says on rank 0 if the volumes for training do not stay in memory, so that windows read whole volumes; not with a store or a
// cache.
void warn_of_reading(const Communicator& world, const Volumes& volumes, const std::vector<std::int64_t>& samples,
                     const TrainOptions& options);
// What is missing between 0 and the largest of these sorted labels, in a line that names the keys that help; "": nothing.
std::string label_gaps(const std::vector<std::int64_t>& labels, const std::string& data);
// The classes that occur in the cells of volumes.
class LabelCount {
 public:
  // `classes` above 0: the number of classes; 0: determined by the labels.
  // `ignores`: cells of data::ignored_label are of no class. `named`: classes below this number exist even if no cell is of one.
  LabelCount(std::int64_t classes, bool ignores, std::int64_t named = 0)
      : classes_(classes > 0 ? std::max(classes, named) : 0), ignores_(ignores), found_(most) {
    for (std::int64_t label = 0; label < std::min<std::int64_t>(named, most); ++label)
      found_[static_cast<std::size_t>(label)] = 1;
  }
  // For trainer::read_data, which reads values and labels in one pass. Errors, with the sample: a label below 0, not below
  // `classes`, or not below 10,000.
  data::ContentsOptions reading(const data::Source& source, DType dtype);
  // 1 + the largest label, or `classes`. UsageError: `classes` is 0 and some numbers below the largest do not occur; the message
  // lists those found. If `classes` is above 0, rank 0 warns of classes that do not occur. Collective.
  std::int64_t classes(const Communicator& world, const std::string& data);

 private:
  static constexpr std::size_t most = 10000;
  std::int64_t classes_;
  bool ignores_;
  std::vector<std::int64_t> found_;  // 1 where a cell has that label
};

// The hash of a volume's values [D, H, W, C], or of a part of them from element `first` on; those of all parts add up. Volumes
// with the same hash have the same extents, channels and values.
std::uint64_t hash_of_values(const Shape& extents, std::int64_t channels, DType type, const void* values, std::int64_t first,
                             std::int64_t count);
// Volumes with one value in every cell, and volumes with the values of another one, found while the data are read.
class ValueSummary {
 public:
  explicit ValueSummary(const data::Source& source);
  void add(std::int64_t sample, const Box& box, const std::byte* values);  // as data::ContentsOptions::values
  // A line for each kind, and one if training and validation (`kept`, sorted) share volumes; on all ranks. Collective.
  std::vector<std::string> remarks(const Communicator& world, const std::vector<std::int64_t>& kept) const;

 private:
  const data::Source& source_;
  std::vector<double> least_, most_;  // of each channel of each sample
  std::vector<std::int64_t> hashes_;  // of each sample, the lower and the upper 32 bits
};

// ---- segmentation of whole volumes

// Scores of one sample for each class, or 0 and each target, as models/evaluate/segmentation_metrics.h has them; NaN if the class
// is neither predicted nor true. within: normalised surface Dice; truth, predicted: volumes in mm^3.
//
// Then come the regions, in the order of SegmentOptions::regions.
struct Case {
  std::int64_t sample = 0;
  std::vector<double> dice{}, jaccard{}, hausdorff{}, within{}, truth{}, predicted{};
  std::vector<double> volume_difference{};  // |predicted / true - 1|; NaN if nothing is true
  std::vector<double> component_dice{};     // the Dice if only the largest component is kept; of SegmentOptions::regions NaN
};
struct Segmented {
  std::int64_t sample = 0;
  std::vector<std::int32_t> predicted, truth;  // [D, H, W], cells as stored; data::ignored_label in `truth`
};
// A plane of a segmented volume, for pictures.
struct Slice {
  std::int64_t sample = 0, plane = 0;
  double dice = 0;                                 // the mean over the classes that the case has; NaN if it has none
  Shape extents{0, 0};                             // rows and columns
  std::vector<std::int32_t> predicted{}, truth{};  // of the plane
};
inline constexpr std::size_t most_shown = 6;
// The plane with the most cells of classes other than 0, of a volume of `extents`.
Slice slice_of(const Segmented& segmented, const Shape& extents, double dice);
// The slices with the smallest Dice of those of all ranks, the smallest first, at most most_shown: on rank 0; none on other
// ranks. Collective.
std::vector<Slice> worst_of(const Communicator& world, std::vector<Slice> slices);

struct SegmentOptions {
  GridPtr grid{};
  double overlap = 0.5;
  std::int64_t windows = 1;
  DType dtype = DType::float32;
  std::vector<int> mirrored{};          // axes, as segmentation::SlidingWindowOptions has them
  DType sums = DType::float32;          // of probabilities, likewise
  bool scored = true;                   // compare with labels
  bool final = true;                    // with distances of surfaces and scores of largest components
  std::vector<std::int64_t> largest{};  // the classes, or targets from 1 on, of which only the largest component is kept
  std::vector<Region> targets{};        // of the outputs, if they are no classes
  std::vector<Region> regions{};        // that are scored, too
  double tolerance = 1;                 // mm between surfaces
  // Called on one rank for each sample; `dice` is its case's mean, NaN without scores.
  std::function<void(const Segmented& segmented, double dice)> done{};
};
// The numbers of classes or targets that a Case has, 0 included.
inline std::int64_t scored_classes(const Problem& problem, const std::vector<Region>& targets) {
  return targets.empty() ? problem.outputs : static_cast<std::int64_t>(targets.size()) + 1;
}
segmentation::SlidingWindowOptions window_options(const SegmentOptions& options, const Problem& problem);
// Segments all volumes by the mean of the networks' probabilities; groups of ranks that share samples take turns. Returns the
// cases of all samples on every rank; none if `scored` is false. Collective.
std::vector<Case> segment(const Communicator& world, const segmentation::Ensemble& nets, const Volumes& volumes,
                          const Problem& problem, const std::vector<std::int64_t>& samples, const SegmentOptions& options);

// ---- memory

// Throws UsageError on all ranks unless segmenting the volume that needs most fits into `gib` GiB of each rank, or, for 0, into
// the machine's free memory and the limits of the process, shared among the ranks of a node. Volumes are not read, but their
// headers. Returns a line about it. Collective.
std::string require_memory(const Communicator& world, const SegmentationProgram& program, const Volumes& volumes,
                           const Problem& problem, const SegmentOptions& options, double gib);

// ---- post-processing

inline constexpr const char* postprocessing_file = "postprocessing.json";
// The classes, or targets from 1 on, whose mean Dice over the cases grows if only their largest component is kept.
std::vector<std::int64_t> chosen_components(const std::vector<Case>& cases, std::int64_t classes);
// The text of postprocessing_file.
std::string to_postprocessing(const SegmentationProgram& program, const std::vector<Case>& cases, std::int64_t classes,
                              const std::vector<Region>& targets = {});
// The classes or targets that such a file names. Error: it is no such file, or one for another number of classes or for other
// targets.
std::vector<std::int64_t> read_postprocessing(const std::filesystem::path& path, std::int64_t classes,
                                              const std::vector<Region>& targets = {});

// ---- scores of several cases

// The mean over the cases that have a value, and how many have none.
struct Mean {
  double value = 0;
  std::int64_t undefined = 0;
};
Mean mean_of(const std::vector<Case>& cases, std::vector<double> Case::*values, std::size_t label);
// The mean over all classes except 0.
double mean_dice(const std::vector<Case>& cases, std::int64_t classes);
// The mean over the classes that the case has except 0; NaN: it has none.
double mean_dice(const Case& of, std::int64_t classes);
// Of its 95 % confidence interval both ends: quantiles of 2,000 bootstrap samples of the cases; NaN for fewer than two cases.
std::array<double, 2> dice_interval(const std::vector<Case>& cases, std::int64_t classes);
// The same of the mean of one class or region.
std::array<double, 2> interval_of(const std::vector<Case>& cases, std::vector<double> Case::*values, std::size_t label);

// ---- results

struct Epoch {
  std::int64_t epoch = 0;
  double train_loss = 0, validation = 0;
  std::vector<double> dice;
};
struct Results {
  std::int64_t classes = 2;  // scored_classes()
  std::vector<Region> targets{}, regions{};
  std::vector<Case> cases;
  std::vector<Slice> shown;  // of the worst cases, on rank 0
  std::vector<Epoch> epochs;
  std::size_t labels() const { return static_cast<std::size_t>(classes) + regions.size(); }
  // "2", or the region's name.
  std::string name_of(std::size_t label) const;
  bool is_region(std::size_t label) const { return !targets.empty() || static_cast<std::int64_t>(label) >= classes; }
};
inline constexpr const char *cases_file = "cases.csv", *report_file = "report.html";
std::string picture_file(const SegmentationProgram& program);
// Writes the cases, the pictures, the page, the post-processing and the summary, and prints the summary or the table. On one
// rank.
void report(const SegmentationProgram& program, const Options& options, const Outputs& out, const Results& results,
            const Volumes& volumes, nlohmann::ordered_json run, const std::vector<std::string>& files, const std::string& text);
// Draws slices of the worst cases with the outlines of truth and prediction, predicted against true volumes, and curves.
void draw(const std::filesystem::path& path, const Results& results, const Volumes& volumes);
// Draws the slices that are shown, larger.
void draw_slices(const std::filesystem::path& path, const Results& results, const Volumes& volumes);
// A page with the scores by class, region and case and the slices, without references to other files. `picture`: where the slices
// are drawn, for a moment.
std::string page_of(const SegmentationProgram& program, const Results& results, const Volumes& volumes,
                    const std::filesystem::path& picture, const std::string& text);

}  // namespace mpigrad::trainer::segmenting
