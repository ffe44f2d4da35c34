#pragma once
// Folders of volumes in NumPy files, each with a file of labels in the same folder, as MLPerf's preprocessing of KiTS19 writes
// them: case_00000_x.npy [1, D, H, W] of float32 and case_00000_y.npy [1, D, H, W] of uint8.

#include <filesystem>

#include "models/data/source.h"

namespace mpigrad::data {

struct NpyPairsOptions {
  std::string volume = "_x.npy", label = "_y.npy";  // endings of file names; label may be "": no targets
};

// Volumes are [C, D, H, W] or [D, H, W] and may differ in their extents; labels are [1, D, H, W] or [D, H, W] of integers, one
// for each cell. All headers are read when the source is made; later only the requested boxes are read. Errors, with the file: a
// folder that is missing or without such files, a volume without labels, not .npy, in Fortran order, truncated, longer than it
// claims, other extents than its labels, another type or number of channels than the first file.
class NpyPairs : public Source {
 public:
  explicit NpyPairs(const std::filesystem::path& folder, const NpyPairsOptions& options = {});

  std::int64_t size() const override;
  const SampleType& sample_type() const override;
  Shape extents_of(std::int64_t sample) const override;
  void read(std::int64_t sample, const Box& box, std::byte* out) const override;
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override;
  std::string name_of_sample(std::int64_t sample) const override;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// True if the folder has such files.
bool has_npy_pairs(const std::filesystem::path& folder);

}  // namespace mpigrad::data
