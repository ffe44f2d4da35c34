#pragma once
// What `evaluate` finds out, and how it is drawn.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "framework/tensor/tensor.h"
#include "models/data/source.h"

namespace mpigrad::contrast {

using Results = std::vector<std::pair<std::string, double>>;

// Pictures of eight test samples with their eight nearest others, those of the same label framed, and all of them along the two
// directions in which they differ most. z: [n, D], the same on all ranks; labels may be missing. Collective; rank 0 writes.
void draw(const std::filesystem::path& path, const data::Source& source, const std::vector<std::int64_t>& samples,
          const Tensor& z, const std::vector<std::int64_t>& labels, const Communicator& world);

// Coordinates [n, 2] along the two principal axes of the rows of z, by power iteration.
std::vector<double> principal_plane(const Tensor& z);

}  // namespace mpigrad::contrast
