#pragma once
// Samples in HDF5 files.

#include <filesystem>

#include "models/data/source.h"

namespace mpigrad::data {

struct UniverseOptions {
  // false: only `full` is read, and the samples have no targets, as for universes with unknown parameters.
  bool targets = true;
  int open_files = 64;  // number of files that are kept open
};

// CosmoFlow's files, one universe each: `full` integers [D, H, W, C] (counts of particles), `unitPar` [T] in [-1, 1]; optionally
// `namePar` and `physPar`. `path` is such a file or a folder of them (*.hdf5, *.h5; sorted by name). Errors: missing, no such
// files, not HDF5, truncated, another shape or type than these or than the first file's.
class UniverseSource : public Source {
 public:
  explicit UniverseSource(const std::filesystem::path& path, const UniverseOptions& options = {});

  std::int64_t size() const override;
  const SampleType& sample_type() const override;
  void read(std::int64_t sample, const Box& box, std::byte* out) const override;
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override;
  std::string name_of_sample(std::int64_t sample) const override;
  // Opens every file, even where no targets are read.
  void check(std::int64_t part, std::int64_t parts) const override;

  // `physPar` of a sample, in the order of the names: the physical values of unitPar. Error if the file has none.
  std::vector<double> physical(std::int64_t sample) const;
  bool has_physical() const;  // of the first file

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// The file itself, or the files *.hdf5 and *.h5 of a folder, sorted by name. Errors: missing, none in the folder.
std::vector<std::filesystem::path> hdf5_files(const std::filesystem::path& path);

struct ArrayNames {
  std::string volume = "volume", label = "label";
};

// One file with all samples: in `group` ("" for the root) a dataset of volumes, numbers [n, D, H, W, C], and one of labels, where
// integers are classes. Labels are [n] or [n, T], one or a row for each sample; or [n, D, H, W] or [n, D, H, W, K], one or K for
// each cell. With an empty label name there are no labels. Alternatively a folder of such files (as pack() writes them), whose
// samples follow each other in the order of the files' names. If present, the texts `label_names` name the labels, and the
// attribute `transform` of the volumes is the meaning of of_source; otherwise bytes are `unit` and other types `none`. Errors in
// addition to those of files: a folder in which one of the files of pack() is missing; classes beyond 2^53.
class ArraySource : public Source {
 public:
  explicit ArraySource(const std::filesystem::path& path, const std::string& group = "", const ArrayNames& names = {});

  std::int64_t size() const override;
  const SampleType& sample_type() const override;
  void read(std::int64_t sample, const Box& box, std::byte* out) const override;
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override;
  std::string name_of_sample(std::int64_t sample) const override;
  bool targets_in_memory() const override { return !target_type().per_cell; }

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace mpigrad::data
