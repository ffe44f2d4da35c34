// Texts of variable length. HDF5 allocates the memory that such a text claims before it looks for the text.

#include <algorithm>
#include <bit>
#include <cstring>

#include "comm/hdf5/detail.h"

namespace mpigrad::hdf5 {
namespace {

static_assert(std::endian::native == std::endian::little, "lengths are little-endian in files");

// A conversion function for HDF5. A file stores for each text its length in 4 bytes, and its position; this keeps only the
// length.
herr_t keep_length(hid_t from, hid_t to, H5T_cdata_t* data, std::size_t count, std::size_t stride, std::size_t, void* buffer,
                   void*, hid_t) {
  if (data->command == H5T_CONV_INIT) {
    data->need_bkg = H5T_BKG_NO;
    return H5Tis_variable_str(from) > 0 && H5Tequal(to, H5T_STD_U32LE) > 0 ? 0 : -1;
  }
  if (data->command != H5T_CONV_CONV) return 0;
  constexpr std::size_t kept = sizeof(std::uint32_t);
  auto* bytes = static_cast<char*>(buffer);
  const auto step = stride == 0 ? H5Tget_size(from) : stride, step_kept = stride == 0 ? kept : stride;
  for (std::size_t i = 0; i < count; ++i) std::memmove(bytes + i * step_kept, bytes + i * step, kept);
  return 0;
}

}  // namespace

double claimed_bytes(hid_t type, std::size_t count, const std::function<herr_t(hid_t, void*)>& read) {
  constexpr const char* name = "length of a text";
  std::vector<std::uint32_t> lengths(count);
  const bool known = H5Tregister(H5T_PERS_SOFT, name, type, H5T_STD_U32LE, keep_length) >= 0;
  const bool done = known && read(H5T_STD_U32LE, lengths.data()) >= 0;
  const hid_t errors = H5Eget_current_stack();  // unregistering empties the stack
  if (known) H5Tunregister(H5T_PERS_SOFT, name, -1, -1, keep_length);
  H5Eset_current_stack(errors);
  double bytes = done ? 0 : -1;
  for (std::size_t i = 0; done && i < count; ++i) bytes += lengths[i];
  return bytes;
}

std::vector<std::string> texts_in(const void* memory, hid_t type, std::size_t count) {
  std::vector<std::string> result;
  if (H5Tis_variable_str(type) > 0) {
    const auto* pointers = static_cast<const char* const*>(memory);
    for (std::size_t i = 0; i < count; ++i) result.emplace_back(pointers[i] == nullptr ? "" : pointers[i]);
    return result;
  }
  const auto size = H5Tget_size(type);
  const char filler = H5Tget_strpad(type) == H5T_STR_SPACEPAD ? ' ' : '\0';
  for (std::size_t i = 0; i < count; ++i) {
    std::string text(static_cast<const char*>(memory) + i * size, size);
    text.resize(std::min(text.size(), text.find('\0')));
    while (!text.empty() && text.back() == filler) text.pop_back();
    result.push_back(std::move(text));
  }
  return result;
}

}  // namespace mpigrad::hdf5
