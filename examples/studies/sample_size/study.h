#pragma once
// Do larger samples learn better? The same boxes are cut into cubes of several sizes. For each size and seed there is one
// training, with equal numbers of voxels in a step and of steps.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "examples/studies/sample_size/scores.h"
#include "models/data/source.h"
#include "models/networks/cosmoflow.h"

namespace mpigrad::sample_size {

struct StudyOptions {
  std::string out = "sample-size", network = "pyramid";
  std::vector<std::int64_t> sizes{16, 32, 64};  // sides of the cubes, ascending
  std::int64_t box = 64;                        // cells per side of a universe
  double cell = 4;                              // Mpc/h
  std::int64_t training = 400, test = 100;      // universes
  std::int64_t seeds = 3, epochs = 1;           // passes over the universes
  std::uint64_t seed = 1;                       // seed of the universes
  double learning_rate = 1e-4;
  std::int64_t universes_in_step = 8;                // fewer if there are fewer; not an option, but it determines the results
  bool report = false, json = false, quiet = false;  // report: only of existing results
};

// ---- its folder (folder.cpp)

// Everything that determines the results, one a line, for the file that protects a folder from other studies.
std::string describe(const StudyOptions& options);
// Reads that file in options.out. UsageError: there is none; Error: an invalid line.
void read_study(StudyOptions& options);
// Makes the study's folder; it may have a folder `universes` already, as `universe generate` writes it. UsageError: another
// study's folder, other files, universes of another simulation. On one rank.
void claim_folder(const StudyOptions& options);
// The folder of a training: "size016-seed2"; and its file of predictions, which exists when the training is done.
std::string folder_of(std::int64_t size, std::int64_t seed);
std::filesystem::path predictions_of(const StudyOptions& options, std::int64_t size, std::int64_t seed);
std::filesystem::path regression_of(const StudyOptions& options, std::int64_t size);
// The file next to `predictions` with the predictions for the universes of the training.
std::filesystem::path training_predictions(const std::filesystem::path& predictions);
// Throws UsageError if a universe in the folder is not the study's; checks every `parts`th from `part`.
void check_universes(const StudyOptions& options, std::int64_t part, std::int64_t parts);
// Sizes for which any training is done, ascending; seeds for which the trainings of all options.sizes are.
std::vector<std::int64_t> sizes_done(const StudyOptions& options);
std::vector<std::int64_t> seeds_done(const StudyOptions& options);

// ---- what it does

std::int64_t cubes_per_box(const StudyOptions& options, std::int64_t size);
// Cubes in a step.
std::int64_t cubes_per_step(const StudyOptions& options, std::int64_t size);

// Cubes of `size` cells, cut from samples whose sides are multiples of it: cube c of sample u is sample u * cubes + c, in the
// order d, h, w.
class CubeSource : public data::Source {
 public:
  CubeSource(data::SourcePtr boxes, std::int64_t size);
  std::int64_t size() const override { return boxes_->size() * cubes_; }
  const data::SampleType& sample_type() const override { return type_; }
  void read(std::int64_t sample, const Box& box, std::byte* out) const override;
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override;
  std::string name_of_sample(std::int64_t sample) const override;
  std::int64_t cubes() const { return cubes_; }  // cubes in a box

 private:
  data::SourcePtr boxes_;
  std::int64_t side_, cubes_;  // side_: cubes along each axis
  data::SampleType type_;
};

// The first `count` boxes, read once and kept in memory if those of all ranks of this node fit into a quarter of the
// available memory, because reading a cube from a file takes many short reads. Otherwise the boxes unchanged.
data::SourcePtr kept_in_memory(const data::SourcePtr& boxes, std::int64_t count, const Transport& transport);

// "pyramid": as `cosmoflow train --variant pyramid`; a cube is treated as periodic although it is not in its box, as in its power
// spectrum. "cosmoflow": the hybrid variant of Oyama et al., which flattens at 2^3.
std::unique_ptr<CosmoFlow> make_network(const std::string& name, std::int64_t targets);

// Simulates missing universes, then runs missing fits and trainings, each in its own folder in options.out, which is resumed; no
// other process may work there. Collective. Returns the exit code if a signal has ended it, else 0.
int train_all(const Communicator& world, const StudyOptions& options);

// The predictions of a training, or of the regression, of one size for the cubes of so many universes. On one rank.
std::vector<CubePrediction> read_predictions(const StudyOptions& options, std::int64_t size, const std::filesystem::path& file,
                                             std::int64_t universes);

}  // namespace mpigrad::sample_size
