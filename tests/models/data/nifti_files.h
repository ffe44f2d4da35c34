#pragma once
// The bytes of NIfTI files with complete geometry, and of float32 files.

#include <algorithm>
#include <bit>
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

}  // namespace mpigrad::testing
