#pragma once
// Contents of samples: hashes that distinguish data sets, and the first value that no network can process.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/data/source.h"

namespace mpigrad::data {

struct ContentsOptions {
  DType dtype = DType::float32;  // of the batches: a finite value that this type cannot hold is a flaw
  // The transform of the batches (a negative number before log1p is a flaw). of_source: the source's own.
  Transform transform = Transform::of_source;
  // Most bytes of values that are read at once, unless eight planes are larger. Sources that decode whole files are asked for
  // whole samples.
  std::int64_t slab_bytes = std::int64_t{128} << 20;
  bool finite = true;  // false: values that are not finite are accepted; samples that cannot be read are still flaws
  // Called with all channels of the cells of `box`, whole planes, as stored, on the calling thread.
  std::function<void(std::int64_t sample, const Box& box, const std::byte* values)> values{};
  // Called with the targets of the cells of `box`, as stored, on the calling thread.
  std::function<void(std::int64_t sample, const Box& box, const std::byte* targets)> cells{};
};

struct Contents {
  // Sums, modulo 2^64, of the hash of framework/tensor/content_hash.h over each sample's bytes as the source returns them, eight
  // at a time, and their places in the list, with the extents, channels and types. Names of files are not included.
  std::uint64_t values = 0, targets = 0;
  std::int64_t bytes = 0;  // bytes read
  // The first flaw among the slabs that were read: a read error, or a value that is not finite, with file and place.
  std::int64_t flaw_at = -1;  // the slab's number among those of all samples; -1: no flaw
  std::string flaw{};
};

// Reads the share `part` of `parts` of all values and targets of the samples `samples`, and stops at the first flaw. The sums of
// all parts together are the same for every number of parts and every slab size. A share consists of whole samples, or, with
// fewer samples than parts, of slabs of whole planes. Two slabs (more if they are small, one if they are larger) are in memory at
// once. Not collective.
Contents read_contents(const Source& source, const std::vector<std::int64_t>& samples, std::int64_t part, std::int64_t parts,
                       const ContentsOptions& options = {});

}  // namespace mpigrad::data
