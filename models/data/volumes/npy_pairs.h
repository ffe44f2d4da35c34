#pragma once
// Folders of volumes in NumPy's files, each beside a file of its labels, as MLPerf's preprocessing of KiTS19 writes them:
// case_00000_x.npy [1, D, H, W] of float32 and case_00000_y.npy [1, D, H, W] of uint8.

#include <filesystem>

#include "models/data/source.h"

namespace mpigrad::data {

struct NpyPairsOptions {
  std::string volume = "_x.npy", label = "_y.npy";  // how files' names end; label may be "": no targets
};

// Volumes are [C, D, H, W] or [D, H, W] and may differ in their extents; labels are [1, D, H, W] or [D, H, W] of integers, one
// for each cell. All headers are read when the source is made. Of the files no more is read than the box that is asked for.
// Errors, with the file: a folder that is missing or without such files, a volume without labels, not .npy, in Fortran order, cut
// off, longer than it says, other extents than its labels', another type or number of channels than the first one's.
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

// Whether a folder has such files.
bool has_npy_pairs(const std::filesystem::path& folder);

}  // namespace mpigrad::data
