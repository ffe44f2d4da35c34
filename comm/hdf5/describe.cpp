// The description of a dataset, and the list of all datasets of a file.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <string_view>

#include "comm/hdf5/detail.h"
#include "framework/base/printable.h"

namespace mpigrad::hdf5 {

namespace {

// True for complex numbers as h5py stores them: a compound of the floating-point numbers r and i.
bool is_pair_of_numbers(hid_t type) {
  if (H5Tget_class(type) != H5T_COMPOUND || H5Tget_nmembers(type) != 2) return false;
  std::array<std::size_t, 2> sizes{};
  for (unsigned i = 0; i < 2; ++i) {
    const Handle part(H5Tget_member_type(type, i), H5Tclose);
    char* name = H5Tget_member_name(type, i);
    const bool fits = H5Tget_class(part) == H5T_FLOAT && name && std::string_view(name) == (i == 0 ? "r" : "i");
    H5free_memory(name);
    if (!fits) return false;
    sizes[i] = H5Tget_size(part);
  }
  return sizes[0] == sizes[1] && sizes[0] <= 8;
}

void set_type(hid_t type, Hdf5Dataset& dataset) {
  using Kind = Hdf5Dataset::Kind;
  const auto kind = H5Tget_class(type);
  const auto size = H5Tget_size(type);
  if (kind == H5T_STRING) {
    dataset.kind = Kind::text, dataset.stored = "text";
  } else if (kind == H5T_FLOAT && size <= 8) {
    dataset.kind = Kind::number, dataset.type = size <= 4 ? DType::float32 : DType::float64;
    dataset.stored = fmt::format("float{}", 8 * size);
  } else if (kind == H5T_INTEGER && size <= 8) {
    const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
    dataset.kind = Kind::number, dataset.stored = fmt::format("{}int{}", is_signed ? "" : "u", 8 * size);
    if (size == 1) dataset.type = is_signed ? DType::int16 : DType::uint8;
    else if (size == 2) dataset.type = is_signed ? DType::int16 : DType::uint16;
    else dataset.type = size == 4 && is_signed ? DType::int32 : DType::int64;
  } else if (kind == H5T_ENUM && size == 1 && H5Tget_nmembers(type) == 2) {  // booleans as h5py stores them
    dataset.kind = Kind::number, dataset.type = DType::boolean, dataset.stored = "boolean";
  } else if (is_pair_of_numbers(type)) {
    const Handle part(H5Tget_member_type(type, 0), H5Tclose);
    const auto bytes = H5Tget_size(part);
    dataset.kind = Kind::number, dataset.type = bytes <= 4 ? DType::complex64 : DType::complex128;
    dataset.stored = fmt::format("complex{}", 16 * bytes);
  } else {
    dataset.stored = "neither numbers nor text";
  }
}

constexpr int deepest_group = 64;

}  // namespace

Hdf5Dataset describe(hid_t dataset, const std::string& name) {
  Hdf5Dataset result;
  result.name = name;
  const Handle space(H5Dget_space(dataset), H5Sclose), type(H5Dget_type(dataset), H5Tclose);
  std::array<hsize_t, H5S_MAX_RANK> extents{};
  const int rank = H5Sget_simple_extent_dims(space, extents.data(), nullptr);
  set_type(type, result);
  H5D_space_status_t status = H5D_SPACE_STATUS_ALLOCATED;
  const Handle creation(H5Dget_create_plist(dataset), H5Pclose);
  if (H5Pget_layout(creation) != H5D_VIRTUAL) H5Dget_space_status(dataset, &status);
  result.written = status != H5D_SPACE_STATUS_NOT_ALLOCATED;
  // An extent of 0 counts as 1, so that the product of the other extents is small enough, too.
  double elements = 1;
  for (int i = 0; i < rank; ++i) elements *= static_cast<double>(std::max<hsize_t>(extents[static_cast<std::size_t>(i)], 1));
  constexpr double countable = 0x1p59;  // in bytes
  if (elements > countable) {
    result.kind = Hdf5Dataset::Kind::other;
    result.stored = fmt::format("{} in shape [{}], more than there can be", result.stored,
                                fmt::join(extents.data(), extents.data() + rank, ", "));
  } else if (H5Sget_simple_extent_type(space) == H5S_NULL || rank > Shape::max_rank) result.kind = Hdf5Dataset::Kind::other;
  else
    for (int i = 0; i < rank; ++i) result.shape.push_back(static_cast<std::int64_t>(extents[static_cast<std::size_t>(i)]));
  return result;
}

std::vector<Hdf5Dataset> list_datasets(hid_t file, Limits limits) {
  struct Visit {
    Limits& limits;
    std::vector<Hdf5Dataset> found{};
    std::exception_ptr error{};

    void add(hid_t group, const std::string& name, H5L_type_t type) {
      const auto where = limits.path.string();
      // HDF5 visits groups in groups by recursion.
      require(std::count(name.begin(), name.end(), '/') <= deepest_group, "[hdf5] {}: '{}': groups in groups, more than {} deep",
              where, printable(name, 60), deepest_group);
      const bool strict = limits.reach == Hdf5Reach::file;
      require(!strict || type == H5L_TYPE_HARD || type == H5L_TYPE_SOFT,
              "[hdf5] {}: '{}' is a link to another file, and this file may not refer to other files", where, printable(name));
      const Handle access = access_within(H5P_LINK_ACCESS, limits);
      const Handle object(H5Oopen(group, name.c_str(), access), H5Oclose);
      if (object < 0) H5Eclear2(H5E_DEFAULT);  // a link without a target
      if (object < 0 || H5Iget_type(object) != H5I_DATASET) return;
      try {
        require_elements_within(object, name, limits);
      } catch (const Error&) {
        if (strict) throw;
        return;
      }
      found.push_back(describe(object, name));
    }
  } visit{.limits = limits};
  const auto each = [](hid_t group, const char* name, const H5L_info_t* info, void* data) -> herr_t {
    auto& visit = *static_cast<Visit*>(data);
    try {
      visit.add(group, name, info->type);
      return 0;
    } catch (...) {
      visit.error = std::current_exception();
      return -1;
    }
  };
  const auto status = H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, each, &visit);
  if (visit.error) {
    H5Eclear2(H5E_DEFAULT);
    std::rethrow_exception(visit.error);
  }
  check(status, limits.path, "cannot list the datasets");
  return std::move(visit.found);
}

}  // namespace mpigrad::hdf5
