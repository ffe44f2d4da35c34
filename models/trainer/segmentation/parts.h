#pragma once
// The parts of trainer::run_segmentation() (segmentation.h).

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "comm/communicator.h"
#include "models/data/sources/normalised.h"
#include "models/trainer/infer.h"
#include "models/trainer/run_training.h"
#include "models/trainer/segmentation/segmentation.h"

namespace mpigrad::trainer::segmenting {

// Where volumes are, and how they are read.
struct DataOptions {
  std::string group, volume = "volume", label = "label";  // datasets of HDF5 files
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
  std::vector<std::string> label_map{};  // "STORED=CLASS"
  std::vector<std::int64_t> ignored{};   // stored labels of cells that count in nothing
  bool channel_files = false;            // every channel of a volume is a file
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
  std::vector<std::int64_t> window{};
  std::vector<double> spacing{};
  std::string orientation = "RAS";  // or "stored"
  std::string augment{};            // augment::parse_recipe
  double foreground = 1.0 / 3, contrast = 0, brightness = 0, noise = 0, elastic = 0, elastic_spacing = 16, overlap = 0.5;
  double validation_fraction = 0.2;
  std::uint64_t split_seed = 1;
  bool half_weights = false;
};

struct CheckOptions : trainer::Options {
  DataOptions source;
  Trained trained;
  std::int64_t workers = 0;  // threads of each rank that read files; 0: as many as there are processors for it
};

// Options of evaluate and predict.
struct InferOptions : trainer::InferOptions {
  DataOptions source;
  double overlap = 0.5;
  std::int64_t windows = 1;
  bool largest_component = false, predictions = false;
  double tolerance = 1;  // mm between surfaces
};

// Each function returns the exit code. Collective.
int describe(const Communicator& world, const SegmentationProgram& program, const TrainOptions& options);
int train(const Communicator& world, const SegmentationProgram& program, const TrainOptions& options);
int infer(const Communicator& world, const SegmentationProgram& program, InferOptions options);
int check(const Communicator& world, const CheckOptions& options);

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
// Says on rank 0, a line for each case: volumes that are resampled to the spacings of the training, volumes whose axes are not at
// right angles, and, if `of_training`, volumes that do not say their orientation.
void warn_of_geometry(const Communicator& world, const Volumes& volumes, const Trained& trained, bool of_training);
// What is missing between 0 and the largest of these sorted labels, in a line that names the keys that help; "": nothing.
std::string label_gaps(const std::vector<std::int64_t>& labels, const std::string& data);
// The classes that occur in the cells of volumes.
class LabelCount {
 public:
  // `classes` above 0: the number of classes; 0: determined by the labels.
  // `ignores`: cells of data::ignored_label are of no class.
  LabelCount(std::int64_t classes, bool ignores) : classes_(classes), ignores_(ignores), found_(most) {}
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

// Scores of one sample for each class, as models/evaluate/segmentation_metrics.h has them; NaN if the class is neither predicted
// nor true. within: normalised surface Dice; truth, predicted: volumes in mm^3.
struct Case {
  std::int64_t sample = 0;
  std::vector<double> dice, jaccard, hausdorff, within, truth, predicted;
};
struct Segmented {
  std::int64_t sample = 0;
  std::vector<std::int32_t> predicted, truth;  // [D, H, W], cells as stored; data::ignored_label in `truth`
};
struct SegmentOptions {
  std::string program{};  // for messages
  GridPtr grid{};
  double overlap = 0.5;
  std::int64_t windows = 1;
  DType dtype = DType::float32;
  bool scored = true;  // compare with labels
  bool surfaces = true, largest_component = false;
  double tolerance = 1;  // mm between surfaces
  // Called on one rank for each sample.
  std::function<void(const Segmented&)> done{};
};
// Segments all volumes; groups of ranks that share samples take turns. Returns the cases of all samples on every rank; none if
// `scored` is false. Collective.
std::vector<Case> segment(const Communicator& world, nn::Module& net, const Volumes& volumes, const Problem& problem,
                          const std::vector<std::int64_t>& samples, const SegmentOptions& options);
// The mean over the cases that have a value, and how many have none.
struct Mean {
  double value = 0;
  std::int64_t undefined = 0;
};
Mean mean_of(const std::vector<Case>& cases, std::vector<double> Case::*values, std::size_t label);
// The mean over all classes except 0.
double mean_dice(const std::vector<Case>& cases, std::int64_t classes);
// Of its 95 % confidence interval both ends: quantiles of 2,000 bootstrap samples of the cases; NaN for fewer than two cases.
std::array<double, 2> dice_interval(const std::vector<Case>& cases, std::int64_t classes);

// ---- results

struct Epoch {
  std::int64_t epoch = 0;
  double train_loss = 0, validation = 0;
  std::vector<double> dice;
};
struct Results {
  std::int64_t classes = 2;
  std::vector<Case> cases;
  std::vector<Segmented> shown;  // a few samples, on rank 0
  std::vector<Epoch> epochs;
};
inline constexpr const char* cases_file = "cases.csv";
std::string picture_file(const SegmentationProgram& program);
inline constexpr std::size_t most_shown = 3;
// Writes the cases, the picture and the summary, and prints the summary or the table. On one rank.
void report(const SegmentationProgram& program, const Options& options, const Outputs& out, const Results& results,
            const Volumes& volumes, nlohmann::ordered_json run, const std::vector<std::string>& files, const std::string& text);
// Draws slices with the outlines of truth and prediction, predicted against true volumes, and curves.
void draw(const std::filesystem::path& path, const Results& results, const Volumes& volumes);

}  // namespace mpigrad::trainer::segmenting
