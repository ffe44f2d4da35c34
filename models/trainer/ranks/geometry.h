#pragma once
// How the volumes of a training lie in the body: orientation and spacing of their files, which weights keep and other volumes
// must have.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "models/trainer/run.h"

namespace mpigrad::trainer {

struct Geometry {
  std::string orientation;  // such as "RAS" (data::orientation_of); empty: the volumes say none
  // Least and largest mm between cells along D, H, W; 0: the volumes say none, or are resampled.
  std::array<double, 3> least{}, most{};

  bool known() const { return !orientation.empty() || least[0] > 0; }
  std::string text() const;    // "RAS, 1 x 1 x 2 mm [z, y, x]"
  std::string remark() const;  // for headlines: "; RAS, 1 x 1 x 2 mm [z, y, x]"; "": nothing is known
};
inline constexpr const char* geometry_note = "geometry";
std::string to_note(const Geometry& geometry);

// Of samples that are files of volume_formats.h; of others nothing is known. `resampled`: spacing is the network's own, and not
// looked at. The ranks share the reading of headers. UsageError: two orientations, with a file of each. Collective.
Geometry geometry_of(const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples,
                     bool resampled = false);
// UsageError: a sample of another orientation than the weights' training, or whose spacing is more than 1 % outside that of the
// training, with both. What is not known of the weights or of the samples is not compared, and rank 0 says so once. Collective.
void require_same_geometry(const Communicator& world, const std::string& weights, const CheckpointInfo& info,
                           const data::Source& source, const std::vector<std::int64_t>& samples, bool resampled = false);

}  // namespace mpigrad::trainer
