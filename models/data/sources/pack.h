#pragma once
// Any source as HDF5, which thousands of ranks can read: a few large files instead of a million small ones.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "models/data/source.h"

namespace mpigrad::data {

// Some of the samples, in this order, under a name of their own: `NAME/volume`, `NAME/label`.
struct PackGroup {
  std::string name;
  std::vector<std::int64_t> samples;
};

struct PackOptions {
  // 0: all samples in the one file `path`. Else `path` is a new folder of shard_00000.h5, ... whose `volume` have the attributes
  // `first` and `samples`, by which readers of the folder notice a file that is missing.
  std::int64_t samples_per_file = 0;
  // Of one file: what is for training, for validation, ...; samples that are in no group are left out. None: all, in the root.
  std::vector<PackGroup> groups{};
  std::function<void(std::int64_t done)> progress{};  // after each part that is written
};

// Writes every sample and its targets as they are stored: `volume` [n, D, H, W, C] with the attribute `transform`, and where
// there are targets `label` [n, T] with `label_names`, or [n, D, H, W, ...] if each cell has some. open_source(path) and
// ArraySource(path), or ArraySource(path, NAME) of a group, then give what the source gives; rows of numbers as float64, of
// classes as int64. Called by one process, with nobody waiting; it reads about 64 MiB at a time.
//
// Errors: anything at `path`; groups without samples or a name, of one name, with samples that do not exist, or of several files;
// whatever cannot be read or written, a full disk included. Files are written under other names and renamed when they are
// complete, so after an error there is nothing at `path`.
void pack(const Source& source, const std::filesystem::path& path, const PackOptions& options = {});

}  // namespace mpigrad::data
