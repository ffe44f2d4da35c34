#pragma once
// A volume in a file, whatever its format: extents, channels, where its cells lie, values, labels. volume_formats.h lists the
// formats.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tensor/dtype.h"
#include "framework/tensor/shape.h"
#include "models/data/compressed/compressed.h"

namespace mpigrad::data {

struct VolumeHeader {
  Shape extents{1, 1, 1};       // [D, H, W]: z, y, x
  std::int64_t channels = 1;    // C
  DType type = DType::uint8;    // of the stored numbers: the smallest of the engine's that holds every value
  double slope = 1, shift = 0;  // value = slope * stored + shift; NIfTI: a slope of 0 in the file means 1 and 0
  // Millimetres from cell to cell along D, H, W, without a sign; 1 where the file says none.
  std::array<double, 3> spacing{1, 1, 1};
  // Rows x, y, z of [R | t]: cell (i, j, k) along W, H, D lies at R (i, j, k) + t millimetres; x, y, z grow to the right, the
  // front and the head.
  std::array<double, 12> affine{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  bool placed = false;  // whether the file says where cells lie; if not, `affine` is made of the spacing
  // What a writer of the same format copies from the file that was read: changes to spacing and affine are not seen by it. The
  // format's name and the header's bytes, in the form that its reader describes; empty: nothing.
  std::string_view format{};
  Bytes bytes{};
};

struct VolumeValues {
  VolumeHeader header{};
  std::vector<float> values{};  // [D, H, W, C], slope and shift applied in double
};

struct VolumeLabels {
  VolumeHeader header{};
  std::vector<std::int32_t> values{};  // [D, H, W]
};

// What differs in where the cells of two files lie, in words ("extents [35, 51, 36] and [35, 50, 36]", "spacing ...",
// "places: ..."); "" if nothing does: extents are equal, the spacing is to within 1 % of a cell, and every cell of one is within
// 1 % of a cell from the same cell of the other. Channels, types and values are not compared.
std::string difference(const VolumeHeader& a, const VolumeHeader& b);

// Of cells that no file lies behind: [D, H, W] cells `spacing` mm apart, the first at 0.
VolumeHeader plain_volume_header(const Shape& extents, const std::array<double, 3>& spacing = {1, 1, 1});

}  // namespace mpigrad::data
