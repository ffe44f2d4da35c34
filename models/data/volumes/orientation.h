#pragma once
// Which way the axes of a stored volume point in the body.

#include <string>

#include "models/data/volumes/volume.h"

namespace mpigrad::data {

// Three letters for the axes i, j, k of the file (W, H, D): the direction of R or L, A or P, S or I to which each points most,
// such as "RAS". Oblique volumes have the letters of the nearest axes. "": the file says none, or its
// affine map has an axis without a length.
std::string orientation_of(const VolumeHeader& header);

}  // namespace mpigrad::data
