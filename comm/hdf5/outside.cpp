// What a file may lead its readers to: nothing outside its own folder.

#include <algorithm>

#include "comm/hdf5/detail.h"
#include "framework/tensor/printable.h"

namespace mpigrad::hdf5 {

namespace fs = std::filesystem;

namespace {

// Why `target`, as `file` names it, is not read; empty if it is.
std::string reason_against(const fs::path& file, const std::string& target) {
  std::error_code error;
  const auto folder = fs::canonical(file.has_parent_path() ? file.parent_path() : fs::path("."), error);
  if (error) return error.message();
  const auto found = fs::canonical(folder / target, error);
  if (error) return "which is not in this file's folder";  // HDF5 would look elsewhere, too
  const auto below = found.lexically_relative(folder);
  if (below.empty() || *below.begin() == "..") return "which is outside this file's folder";
  return {};
}

herr_t follow(const char* parent, const char*, const char* target, const char*, unsigned*, hid_t, void* data) {
  const auto reason = reason_against(parent, target);
  if (reason.empty()) return 0;
  *static_cast<std::string*>(data) = fmt::format("it is a link to {}, {}", printable(target), reason);
  return -1;
}

constexpr int deepest = 8;  // virtual datasets of virtual datasets

// The file that a dataset is in, which a link may have led to.
fs::path file_of(hid_t dataset) {
  const auto length = std::max<ssize_t>(H5Fget_name(dataset, nullptr, 0), 0);
  std::string name(static_cast<std::size_t>(length) + 1, '\0');
  H5Fget_name(dataset, name.data(), name.size());
  return name.c_str();
}

void require_within(hid_t dataset, const std::string& name, int depth) {
  const auto path = file_of(dataset);
  const auto where = fmt::format("[hdf5] {}: dataset '{}'", path.string(), printable(name));
  const Handle creation(H5Dget_create_plist(dataset), H5Pclose);
  if (H5Pget_external_count(creation) > 0) {
    std::string file(256, '\0');
    H5Pget_external(creation, 0, file.size(), file.data(), nullptr, nullptr);
    fail("{} has its elements in {} (external storage), which is not read", where, printable(file.c_str()));
  }
  if (H5Pget_layout(creation) != H5D_VIRTUAL) return;
  require(depth < deepest, "{} is virtual over more than {} files", where, deepest);
  std::size_t sources = 0;
  check(H5Pget_virtual_count(creation, &sources), path, "no sources of a virtual dataset");
  for (std::size_t i = 0; i < sources; ++i) {
    const auto text = [&](auto get) {
      const auto length = get(creation, i, nullptr, 0);
      std::string value(static_cast<std::size_t>(std::max<decltype(length)>(length, 0)) + 1, '\0');
      get(creation, i, value.data(), value.size());
      return std::string(value.c_str());
    };
    const auto file = text(H5Pget_virtual_filename), source = text(H5Pget_virtual_dsetname);
    if (file == ".") continue;
    require(file.find('%') == std::string::npos, "{} has its elements in files {}, of which the names are only a pattern", where,
            printable(file));
    const auto reason = reason_against(path, file);
    require(reason.empty(), "{} has its elements in {}, {}", where, printable(file), reason);
    const auto next = (path.has_parent_path() ? path.parent_path() : fs::path(".")) / file;
    const Handle opened(check(H5Fopen(next.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), next, "cannot be opened"), H5Fclose);
    std::string refused;
    const Handle access = access_within_folder(H5P_DATASET_ACCESS, refused);
    const Handle inner(H5Dopen2(opened, source.c_str(), access), H5Dclose);
    require(inner >= 0, "{} has its elements in {}: no dataset '{}'{}{}", where, printable(file), printable(source),
            refused.empty() ? "" : ": ", refused);
    require_within(inner, source, depth + 1);
  }
}

}  // namespace

Handle access_within_folder(hid_t kind, std::string& refused) {
  Handle access(H5Pcreate(kind), H5Pclose);
  H5Pset_elink_cb(access, follow, &refused);
  return access;
}

void require_within_folder(hid_t dataset, const std::string& name) { require_within(dataset, name, 0); }

bool is_within_folder(hid_t dataset, const std::string& name) {
  try {
    require_within(dataset, name, 0);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace mpigrad::hdf5
