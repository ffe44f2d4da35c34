#pragma once
// How the volumes of a training lie in the body: orientation and spacing of their files, which weights remember and other volumes
// must match. Volumes that a source turns or resamples count as turned and resampled.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "models/trainer/run.h"

namespace mpigrad::trainer {

struct Geometry {
  std::string orientation;  // such as "RAS" (data::orientation_of); empty: unknown
  // Least and largest mm between cells along D, H, W; 0: unknown, or volumes are resampled.
  std::array<double, 3> least{}, most{};

  bool known() const { return !orientation.empty() || least[0] > 0; }
  std::string text() const;    // "RAS, 1 x 1 x 2 mm [z, y, x]"
  std::string remark() const;  // for headlines: "; RAS, 1 x 1 x 2 mm [z, y, x]"; "" if unknown
};
inline constexpr const char* geometry_note = "geometry";
std::string to_note(const Geometry& geometry);

// The geometry of samples that are files of volume_formats.h; unknown for other samples. `resampled`: all volumes are resampled
// to the network's spacing, so that stored spacings do not matter. The ranks share the reading of headers. UsageError: two
// orientations, with a file of each. Collective.
Geometry geometry_of(const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples,
                     bool resampled = false);
// The geometry that weights remember; unknown if they have no such note. Error: a note that to_note() did not write.
Geometry stated_geometry(const std::string& weights, const CheckpointInfo& info);
// Throws UsageError if a sample's orientation differs from that of the weights' training, or its spacing is more than 1 % outside
// the training's; the message shows both. If either side is unknown, it is not compared, and rank 0 prints that once. Collective.
void require_same_geometry(const Communicator& world, const std::string& weights, const CheckpointInfo& info,
                           const data::Source& source, const std::vector<std::int64_t>& samples, bool resampled = false);

}  // namespace mpigrad::trainer
