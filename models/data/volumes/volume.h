#pragma once
// A volume in a file, independent of its format: extents, channels, places of its cells, values, labels. volume_formats.h lists
// the formats.

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
  DType type = DType::uint8;    // of the stored numbers: the engine's smallest type that holds every value
  double slope = 1, shift = 0;  // value = slope * stored + shift; NIfTI: a slope of 0 in the file means 1 and 0
  // Millimetres between cells along D, H, W, without a sign; 1 where the file has none.
  std::array<double, 3> spacing{1, 1, 1};
  // Rows x, y, z of [R | t]: cell (i, j, k) along W, H, D lies at R (i, j, k) + t millimetres; x, y, z point to the right, the
  // front and the head.
  std::array<double, 12> affine{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  bool placed = false;  // true if the file places its cells; if not, `affine` is made from the spacing
  // Data that a writer of the same format copies from the file that was read; it ignores changes to spacing and affine. The
  // format's name and the header's bytes, as described by the format's reader; empty: no such data.
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

// The difference between the places of two files' cells, in words ("extents [35, 51, 36] and [35, 50, 36]", "spacing ...",
// "places: ..."); "" if there is none: equal extents, spacing within 1 % of a cell, and every cell of one within 1 % of a cell
// from the same cell of the other. Channels, types and values are not compared.
std::string difference(const VolumeHeader& a, const VolumeHeader& b);

// A header for cells that come from no file: [D, H, W] cells `spacing` mm apart, the first at 0.
VolumeHeader plain_volume_header(const Shape& extents, const std::array<double, 3>& spacing = {1, 1, 1});

}  // namespace mpigrad::data
