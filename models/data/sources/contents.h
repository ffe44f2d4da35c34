#pragma once
// The contents of samples: numbers that tell one data set from another, and the first value that no network can take.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/data/source.h"

namespace mpigrad::data {

struct ContentsOptions {
  DType dtype = DType::float32;  // of the batches: a finite value that this type cannot hold is a flaw, too
  // How values are seen (a negative number below log1p is a flaw). of_source: as the source says.
  Transform transform = Transform::of_source;
  // Most bytes of values that are read at once, where eight planes are no larger. Sources that decode whole
  // files are asked for whole samples.
  std::int64_t slab_bytes = std::int64_t{128} << 20;
  bool finite = true;  // no: values that are not finite are no flaw; samples that cannot be read are one nevertheless
  // Called with the targets of the cells of `box`, as stored, on the calling thread.
  std::function<void(std::int64_t sample, const Box& box, const std::byte* targets)> cells{};
};

struct Contents {
  // Sums, modulo 2^64, of framework/tensor/content_hash.h over each sample's bytes as the source gives them, eight at a time, and
  // their places in the list, with the extents, channels and types. Names of files do not count.
  std::uint64_t values = 0, targets = 0;
  std::int64_t bytes = 0;  // that were read
  // The first flaw among the slabs that were read: what cannot be read, or a value that is not finite, with file and place.
  std::int64_t flaw_at = -1;  // the slab's number among those of all samples; -1: there is none
  std::string flaw{};
};

// Reads the share `part` of `parts` of all values and targets of the samples `samples`, and stops at the first flaw. The sums of
// all parts together are the same for every number of parts and every slab. A share is whole samples; where there are fewer
// samples than parts, it is slabs of whole planes. Two slabs, or more small ones, are in memory at once; of larger ones one.
// Not collective.
Contents read_contents(const Source& source, const std::vector<std::int64_t>& samples, std::int64_t part, std::int64_t parts,
                       const ContentsOptions& options = {});

}  // namespace mpigrad::data
