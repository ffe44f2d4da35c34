#pragma once
// Writes any source as HDF5 that thousands of ranks can read: a few large files instead of a million small ones.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "models/data/source.h"

namespace mpigrad::data {

// Some of the samples, in this order, in a group: `NAME/volume`, `NAME/label`.
struct PackGroup {
  std::string name;
  std::vector<std::int64_t> samples;
};

struct PackOptions {
  // 0: all samples in the one file `path`. Otherwise `path` is a new folder of shard_00000.h5, ... whose `volume` have the
  // attributes `first` and `samples`, from which readers of the folder detect a missing file.
  std::int64_t samples_per_file = 0;
  // Groups in one file, such as training and validation; samples in no group are left out. None: all samples, in the root.
  std::vector<PackGroup> groups{};
  std::function<void(std::int64_t done)> progress{};  // called after each part that is written
};

// Writes every sample and its targets as stored: `volume` [n, D, H, W, C] with the attribute `transform`, and, if there are
// targets, `label` [n, T] with `label_names`, or [n, D, H, W, ...] for targets per cell. open_source(path) and ArraySource(path),
// or ArraySource(path, NAME) for a group, then return the same samples as the source; rows of numbers as float64, rows of classes
// as int64. Called by one process only; no other process may wait for it. Reads about 64 MiB at a time.
//
// Errors: `path` exists; groups without samples or a name, with the same name, with samples that do not exist, or with several
// files; read and write errors, including a full disk. Files are written under temporary names and renamed when they are
// complete, so after an error nothing is left at `path`.
void pack(const Source& source, const std::filesystem::path& path, const PackOptions& options = {});

}  // namespace mpigrad::data
