#pragma once
// Do larger samples learn better? The same boxes, cut into cubes of several sizes; for each size and seed one training that sees
// as many voxels in a step as the others, and as many steps.

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
  std::uint64_t seed = 1;                       // of the universes
  double learning_rate = 1e-4;
  std::int64_t universes_in_step = 8;                // fewer where fewer are learnt from; no option, but it decides the numbers
  bool report = false, json = false, quiet = false;  // report: of what is there already
};

// ---- its folder (folder.cpp)

// What decides the numbers, for the file that guards a folder against other studies: a line each.
std::string describe(const StudyOptions& options);
// The same from the file in options.out. UsageError: there is none; Error: a line that is none of its.
void read_study(StudyOptions& options);
// Makes the folder of one that is none; it may have a folder `universes` already, as `universe generate` writes it. UsageError:
// another study's, files of no study, universes of another simulation. Of one rank.
void claim_folder(const StudyOptions& options);
// Of a training: "size016-seed2", and what it has predicted, a file that is there when it is done.
std::string folder_of(std::int64_t size, std::int64_t seed);
std::filesystem::path predictions_of(const StudyOptions& options, std::int64_t size, std::int64_t seed);
std::filesystem::path regression_of(const StudyOptions& options, std::int64_t size);
// The file beside such a one with what was predicted of the universes that were learned from.
std::filesystem::path training_beside(const std::filesystem::path& predictions);
// Whether the universes in the folder are those of the study, of every `parts`th from `part`. UsageError: one is not.
void check_universes(const StudyOptions& options, std::int64_t part, std::int64_t parts);
// Sizes of which any training is done, ascending; seeds whose trainings of all options.sizes are.
std::vector<std::int64_t> sizes_done(const StudyOptions& options);
std::vector<std::int64_t> seeds_done(const StudyOptions& options);

// ---- what it does

std::int64_t cubes_per_box(const StudyOptions& options, std::int64_t size);
// Those of a step.
std::int64_t cubes_per_step(const StudyOptions& options, std::int64_t size);

// Cubes of `size` cells, cut from samples whose sides are multiples of it: cube c of sample u is sample u * cubes + c, in the
// order of d, h, w.
class CubeSource : public data::Source {
 public:
  CubeSource(data::SourcePtr boxes, std::int64_t size);
  std::int64_t size() const override { return boxes_->size() * cubes_; }
  const data::SampleType& sample_type() const override { return type_; }
  void read(std::int64_t sample, const Box& box, std::byte* out) const override;
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override;
  std::string name_of_sample(std::int64_t sample) const override;
  std::int64_t cubes() const { return cubes_; }  // of a box

 private:
  data::SourcePtr boxes_;
  std::int64_t side_, cubes_;  // side_: cubes along each axis
  data::SampleType type_;
};

// The first `count` boxes, read once and kept, where those of so many processes of this node fit in a quarter of what is
// available: a cube of a file is many short reads. Else the boxes as they are.
data::SourcePtr kept_in_memory(const data::SourcePtr& boxes, std::int64_t count, int processes);

// "pyramid": as `cosmoflow train --variant pyramid`, the faces of a cube neighbours although they are none in its box, as they
// are in its power spectrum; "cosmoflow": the hybrid variant of Oyama et al., which flattens at 2^3.
std::unique_ptr<CosmoFlow> make_network(const std::string& name, std::int64_t targets);

// Simulates what is missing, fits and trains what is missing, each a folder of its own in options.out that is gone on with, while
// no other process is at work there. Collective; the code to exit with where a signal has ended it, else 0.
int train_all(const Communicator& world, const StudyOptions& options);

// What a training, or the regression, of one size has predicted of the cubes of so many universes. Of one rank.
std::vector<CubePrediction> read_predictions(const StudyOptions& options, std::int64_t size, const std::filesystem::path& file,
                                             std::int64_t universes);

}  // namespace mpigrad::sample_size
