#pragma once
// The bytes of NIfTI files with complete geometry, and of float32 files.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/format_files.h"

namespace mpigrad::testing {

template <class T>
void put(Bytes& file, std::size_t at, T value, bool big = false) {
  Bytes bytes;
  append(bytes, value, big);
  std::copy(bytes.begin(), bytes.end(), file.begin() + static_cast<std::ptrdiff_t>(at));
}
inline void put_floats(Bytes& file, std::size_t at, const std::vector<float>& values, bool big = false) {
  for (std::size_t i = 0; i < values.size(); ++i) put(file, at + 4 * i, std::bit_cast<std::uint32_t>(values[i]), big);
}

// 4 x 3 x 2 cells in x, y, z with all fields that define the geometry.
inline Bytes full_file(bool big, std::int16_t qform = 1, std::int16_t sform = 2, std::uint8_t units = 2) {
  std::vector<int> elements;
  for (int i = 0; i < 24; ++i) elements.push_back(i % 5);
  auto file = nifti_file({4, 3, 2}, 4, elements, {.big = big});
  put_floats(file, 76, {-1, 2, 3, 4}, big);
  file[123] = static_cast<std::byte>(units);
  const std::string description = "made by hand";
  for (std::size_t i = 0; i < description.size(); ++i) file[148 + i] = static_cast<std::byte>(description[i]);
  put(file, 252, qform, big), put(file, 254, sform, big);
  put_floats(file, 256, {0, 0, 0.70710678F, 10, 20, 30}, big);  // a quarter of a turn about z
  put_floats(file, 280, {-2, 0, 0, 90, 0, 3, 0.5F, -126, 0, 0, 4, -72}, big);
  return file;
}

// A float32 file, which format_files.h does not provide.
inline Bytes float_file(const std::vector<int>& extents, const std::vector<float>& elements) {
  auto file = nifti_file(extents, 2, {});
  put(file, 70, std::int16_t{16}), put(file, 72, std::int16_t{32});
  file.resize(352 + 4 * elements.size());
  put_floats(file, 352, elements);
  return file;
}

struct PlacedOptions {
  int version = 1;
  bool big = false, sform = true;  // without sform the file says no place of its cells
};
// A float32 file of NIfTI-1 or NIfTI-2 of [x, y, z] cells with these rows of [R | t], whose columns have the lengths of pixdim.
inline Bytes placed_file(const std::vector<int>& extents, const std::vector<float>& elements,
                         const std::array<double, 12>& affine, const PlacedOptions& options = {}) {
  const bool second = options.version == 2, big = options.big;
  Bytes file(second ? 544 : 352);
  const auto number = [&](std::size_t at, std::size_t i, double value) {
    if (second) put(file, at + 8 * i, std::bit_cast<std::uint64_t>(value), big);
    else put(file, at + 4 * i, std::bit_cast<std::uint32_t>(static_cast<float>(value)), big);
  };
  const auto extent = [&](std::size_t i, int value) {
    if (second) put(file, 16 + 8 * i, static_cast<std::int64_t>(value), big);
    else put(file, 40 + 2 * i, static_cast<std::int16_t>(value), big);
  };
  put(file, 0, second ? 540 : 348, big);
  extent(0, 3);
  for (std::size_t i = 0; i < 3; ++i) extent(i + 1, extents[i]);
  put(file, second ? 12 : 70, std::int16_t{16}, big), put(file, second ? 14 : 72, std::int16_t{32}, big);
  const std::size_t pixdim = second ? 104 : 76, rows = second ? 400 : 280;
  number(pixdim, 0, 1);
  for (std::size_t a = 0; a < 3; ++a) number(pixdim, a + 1, std::hypot(affine[a], affine[4 + a], affine[8 + a]));
  if (second) put(file, 168, std::int64_t{544}, big);
  else number(108, 0, 352);
  if (options.sform && second) put(file, 348, std::int32_t{2}, big);
  else if (options.sform) put(file, 254, std::int16_t{2}, big);
  for (std::size_t i = 0; i < 12 && options.sform; ++i) number(rows, i, affine[i]);
  const std::string magic = second ? std::string("n+2\0\r\n\x1a\n", 8) : "n+1";
  for (std::size_t i = 0; i < magic.size(); ++i) file[(second ? 4 : 344) + i] = static_cast<std::byte>(magic[i]);
  for (const float element : elements) append(file, std::bit_cast<std::uint32_t>(element), big);
  return file;
}

// One of the 48 ways to store a volume: axis i of the file runs along axis order[i] of x, y, z, backwards where flip[i].
struct Way {
  std::array<std::size_t, 3> order{0, 1, 2};
  std::array<bool, 3> flip{};

  std::string letters() const {
    std::string text;
    for (std::size_t i = 0; i < 3; ++i) text += (flip[i] ? "LPI" : "RAS")[order[i]];
    return text;
  }
  std::vector<int> extents(const std::array<int, 3>& xyz) const { return {xyz[order[0]], xyz[order[1]], xyz[order[2]]}; }
  // The place in a volume of xyz cells, stored straight, of the cell (i, j, k) of this one.
  std::array<int, 3> straight(const std::array<int, 3>& xyz, const std::array<int, 3>& cell) const {
    std::array<int, 3> at{};
    for (std::size_t i = 0; i < 3; ++i) at[order[i]] = flip[i] ? xyz[order[i]] - 1 - cell[i] : cell[i];
    return at;
  }
  // f(index of the cell of this volume in its file, index of the same cell in the file of the straight volume)
  template <class F>
  void for_each_cell(const std::array<int, 3>& xyz, F f) const {
    const auto e = extents(xyz);
    std::size_t index = 0;
    for (int k = 0; k < e[2]; ++k)
      for (int j = 0; j < e[1]; ++j)
        for (int i = 0; i < e[0]; ++i) {
          const auto at = straight(xyz, {i, j, k});
          f(index++, static_cast<std::size_t>((at[2] * xyz[1] + at[1]) * xyz[0] + at[0]));
        }
  }
  // The affine map of the same cells as those of the straight one.
  std::array<double, 12> affine(const std::array<int, 3>& xyz, const std::array<double, 12>& straight_map) const {
    auto result = straight_map;
    for (std::size_t row = 0; row < 3; ++row)
      for (std::size_t i = 0; i < 3; ++i) {
        const double step = straight_map[4 * row + order[i]];
        result[4 * row + i] = flip[i] ? -step : step;
        if (flip[i]) result[4 * row + 3] += (xyz[order[i]] - 1) * step;
      }
    return result;
  }
};
inline std::vector<Way> all_ways() {
  std::vector<Way> ways;
  std::array<std::size_t, 3> order{0, 1, 2};
  do {
    for (int flips = 0; flips < 8; ++flips) ways.push_back({order, {(flips & 1) != 0, (flips & 2) != 0, (flips & 4) != 0}});
  } while (std::next_permutation(order.begin(), order.end()));
  return ways;
}

}  // namespace mpigrad::testing
