#pragma once
// Contact maps of proteins, with the fraction of native contacts of each and the chain that it is a frame of.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/data/source.h"

namespace mpigrad::contacts {

// Names of datasets in an HDF5 file, or of .npy files; "" for none.
struct MapNames {
  std::string maps = "contact_maps", native = "native", chain = "chain";
};

struct ContactMaps {
  std::int64_t residues = 0, side = 0;  // side: residues, made even by a row and a column of zeros at the end
  data::SourcePtr source{};             // [1, side, side], one channel; the same numbers are the targets [side * side]
  std::vector<double> native{};         // one for each map, or none
  std::vector<std::int64_t> chain{};    // likewise; without it all maps are of chain 0
};
// Reads maps of numbers from 0 to 1: [n, R, R], [n, R R], or with further dimensions of extent 1. `path`: HDF5, as `folding` and
// others write it, or .npy. Numbers of contacts and chains have one element for each map; a name that was not asked for (`asked`
// is false) may be missing. Errors, with the file: missing, another shape, numbers outside [0, 1].
ContactMaps read_maps(const std::filesystem::path& path, const MapNames& names, bool asked = false);

// The maps for training and those kept: of the last chains, round(fraction * chains) of them and at least one. With one chain:
// its last maps. Errors: no map is left for one of them.
struct ChainSplit {
  std::vector<std::int64_t> training, kept;
};
ChainSplit split_chains(const std::vector<std::int64_t>& chain, double fraction);

}  // namespace mpigrad::contacts
