#pragma once
// Directions of a stored volume's axes in the body.

#include <string>

#include "models/data/volumes/volume.h"

namespace mpigrad::data {

// Three letters for the axes i, j, k of the file (W, H, D): the direction among R or L, A or P, S or I to which each axis points
// most, such as "RAS". Oblique volumes get the letters of the nearest axes. "": the file does not place its cells, or its affine
// map has an axis of length 0.
std::string orientation_of(const VolumeHeader& header);

}  // namespace mpigrad::data
