#pragma once
// Directions of a stored volume's axes in the body, and turning a volume to other directions.

#include <string>
#include <vector>

#include "models/data/data_augment.h"
#include "models/data/volumes/volume.h"

namespace mpigrad::data {

// Three letters for the axes i, j, k of the file (W, H, D): the direction among R or L, A or P, S or I to which each axis points
// most, such as "RAS". Oblique volumes get the letters of the nearest axes. "": the file does not place its cells, or its affine
// map has an axis of length 0.
std::string orientation_of(const VolumeHeader& header);
// True if the text is three such letters, one of each pair.
bool is_orientation(const std::string& text);
// The largest |cosine| of the angle between two axes: 0 if all angles are right, 1 if two axes are parallel.
double shear_of(const VolumeHeader& header);
// Where the spacing (pixdim of NIfTI) and the steps of the affine map differ by more than 1 %: "cells of A x B x C mm [z, y, x],
// and places them D x E x F mm apart"; else, and where the file does not place its cells, "".
std::string spacing_difference(const VolumeHeader& header);

// The exchange and the flips of axes that turn a volume of the orientation `from` to the orientation `to`; without shifts. Error:
// a text that is no orientation.
Augmentation turn_between(const std::string& from, const std::string& to);
Augmentation inverse_turn(const Augmentation& turn);
bool turns(const Augmentation& turn);  // false: it changes nothing
// The header of the turned cells, each of which stays at its place. It has no bytes of a file.
VolumeHeader turned(const VolumeHeader& header, const Augmentation& turn);
// The turned cells of [D, H, W, channels].
std::vector<float> turned(std::vector<float> values, const Shape& extents, std::int64_t channels, const Augmentation& turn);
std::vector<std::int32_t> turned(std::vector<std::int32_t> labels, const Shape& extents, const Augmentation& turn);

}  // namespace mpigrad::data
