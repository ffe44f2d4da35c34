// Checks which other files an HDF5 file refers its readers to. The checks look at the objects that HDF5 has opened, and not at
// the links by which it reaches them.

#include <array>
#include <set>
#include <utility>

#include "comm/hdf5/detail.h"
#include "comm/transport/environment.h"
#include "framework/base/printable.h"

namespace mpigrad::hdf5 {

namespace fs = std::filesystem;

namespace {

fs::path folder_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

bool is_below(const fs::path& file, const fs::path& folder) {
  const auto below = file.lexically_relative(folder);
  return !below.empty() && *below.begin() != "..";
}

// The reason why `target`, as named in `file`, is refused; empty if it is accepted.
std::string reason_against(const fs::path& file, const std::string& target) {
  std::error_code error;
  const auto folder = fs::canonical(folder_of(file), error);
  if (error) return error.message();
  const auto found = fs::canonical(folder / target, error);
  if (error) return "which is not in this file's folder";  // HDF5 would search other places, too
  if (!is_below(found, folder)) return "which is outside this file's folder";
  // HDF5 would wait for the other end of a pipe, and would search other places for a file that it cannot open.
  if (!fs::is_regular_file(found, error)) return "which is not a regular file";
  if (H5Fis_hdf5(found.c_str()) <= 0) return "which is not an HDF5 file";
  return {};
}

herr_t follow(const char* parent, const char*, const char* target, const char*, unsigned*, hid_t, void* data) {
  auto& limits = *static_cast<Limits*>(data);
  const auto reason =
      limits.reach == Hdf5Reach::file ? "and this file may not refer to other files" : reason_against(parent, target);
  if (reason.empty()) return 0;
  limits.refused = fmt::format("it is a link to {}, {}", printable(target), reason);
  return -1;
}

// The path of the file in which HDF5 has found an object, as HDF5 has opened it.
fs::path file_of(hid_t object) {
  const auto length = std::max<ssize_t>(H5Fget_name(object, nullptr, 0), 0);
  std::string name(static_cast<std::size_t>(length) + 1, '\0');
  H5Fget_name(object, name.data(), name.size());
  return name.c_str();
}

// A text from an HDF5 function that returns its length first.
template <class Get>
std::string text_of(Get get) {
  const auto length = get(nullptr, 0);
  std::string value(static_cast<std::size_t>(std::max<decltype(length)>(length, 0)) + 1, '\0');
  get(value.data(), value.size());
  return value.c_str();
}

std::string source_file(hid_t creation, std::size_t source) {
  return text_of([&](char* out, std::size_t size) { return H5Pget_virtual_filename(creation, source, out, size); });
}

// The file of a source of a virtual dataset in the file `path`. The same file (".") is open already, and its name may have
// changed.
Handle open_source(hid_t dataset, const fs::path& path, const std::string& file) {
  if (file == ".") return {check(H5Iget_file_id(dataset), path, "cannot be opened"), H5Fclose};
  const auto next = folder_of(path) / file;
  const Handle access = file_access();
  return {check(H5Fopen(next.c_str(), H5F_ACC_RDONLY, access), next, "cannot be opened"), H5Fclose};
}

// True if a source of a virtual dataset has elements of the box [begin, end), according to the bounding box of its place.
bool has_elements_in(hid_t creation, std::size_t source, std::span<const std::int64_t> begin, std::span<const std::int64_t> end) {
  const Handle place(H5Pget_virtual_vspace(creation, source), H5Sclose);
  std::array<hsize_t, H5S_MAX_RANK> first{}, last{};
  const bool bounded = H5Sget_select_bounds(place, first.data(), last.data()) >= 0;
  if (!bounded) H5Eclear2(H5E_DEFAULT);  // it has no fixed size
  for (std::size_t i = 0; bounded && i < begin.size(); ++i)
    if (last[i] < static_cast<hsize_t>(begin[i]) || first[i] >= static_cast<hsize_t>(end[i])) return false;
  return true;
}

Handle creation_of(hid_t dataset, const std::string& where) {
  Handle creation(H5Dget_create_plist(dataset), H5Pclose);
  require(creation >= 0, "{} has no description: {}", where, error_text());
  return creation;
}

// libhdf5 1.10 reads past the end of the stored elements if the file stores fewer than it describes.
void require_room_of_elements(hid_t dataset, hid_t creation, const std::string& where) {
  const auto layout = H5Pget_layout(creation);
  const auto stored = H5Dget_storage_size(dataset);
  if (layout != H5D_COMPACT && (layout != H5D_CONTIGUOUS || stored == 0)) return;  // 0: no element was ever written
  const Handle space(H5Dget_space(dataset), H5Sclose), type(H5Dget_type(dataset), H5Tclose);
  const auto elements = H5Sget_simple_extent_npoints(space);
  const auto bytes = H5Tget_size(type);
  require(elements >= 0 && bytes > 0, "{} has no countable elements: {}", where, error_text());
  require(static_cast<hsize_t>(elements) <= stored / bytes, "{} has {} elements of {} bytes, and only {} bytes are stored", where,
          elements, bytes, stored);
}

void require_own_bytes(hid_t dataset, hid_t creation, const std::string& where) {
  require_room_of_elements(dataset, creation, where);
  const auto files = H5Pget_external_count(creation);
  if (files == 0) return;
  std::array<char, 256> file{};
  if (files > 0) H5Pget_external(creation, 0, file.size() - 1, file.data(), nullptr, nullptr);
  H5Eclear2(H5E_DEFAULT);
  fail("{} has its elements in {} (external storage), which is not read", where, printable(file.data()));
}

// Checks one source of a virtual dataset: it must be a dataset of the same file (".") or of another one, and hold its own
// elements.
void require_plain_source(hid_t dataset, const fs::path& path, const std::string& where, const std::string& file,
                          const std::string& source) {
  const auto what =
      fmt::format("{} has its elements in {}: '{}'", where, file == "." ? "the same file" : printable(file), printable(source));
  require(file.find('%') == std::string::npos && source.find('%') == std::string::npos, "{}, whose names are only a pattern",
          what);
  if (file != ".") {
    const auto reason = reason_against(path, file);
    require(reason.empty(), "{}, {}", what, reason);
    // HDF5 opens sources itself, and this variable makes it search another folder.
    const auto prefix = environment_variable("HDF5_VDS_PREFIX").value_or(".");
    require(prefix == "." || prefix == "${ORIGIN}", "{}, for which HDF5_VDS_PREFIX={} makes HDF5 look elsewhere: unset it", what,
            printable(prefix));
  }
  const Handle opened = open_source(dataset, path, file);
  Limits limits{.reach = Hdf5Reach::file};
  const Handle access = access_within(H5P_DATASET_ACCESS, limits);
  const Handle inner(H5Dopen2(opened, source.c_str(), access), H5Dclose);
  if (inner < 0) H5Eclear2(H5E_DEFAULT);
  require(inner >= 0, "{}, which is no dataset of that file{}{}", what, limits.refused.empty() ? "" : ": ", limits.refused);
  const Handle creation = creation_of(inner, what);
  require(H5Pget_layout(creation) != H5D_VIRTUAL, "{}, which is virtual itself: a source must be a plain dataset", what);
  require_own_bytes(inner, creation, what);
}

}  // namespace

Limits limits_of(const fs::path& path, Hdf5Reach reach) {
  std::error_code ignored;
  return {.reach = reach, .path = path, .folder = fs::canonical(folder_of(path), ignored)};
}

Handle access_within(hid_t kind, Limits& limits) {
  Handle access(H5Pcreate(kind), H5Pclose);
  H5Pset_elink_cb(access, follow, &limits);
  return access;
}

void require_within(hid_t object, const std::string& name, const Limits& limits) {
  const auto path = file_of(object);
  if (path == limits.path) return;
  // Settings of HDF5, and its search in the working directory, may lead it to another file than the one a link names.
  std::error_code error;
  const auto found = fs::canonical(path, error);
  require(!error && limits.reach == Hdf5Reach::folder && is_below(found, limits.folder),
          "[hdf5] {}: '{}' is found in {}, which is outside this file's folder", limits.path.string(), printable(name),
          path.string());
}

void require_elements_within(hid_t dataset, const std::string& name, const Limits& limits) {
  require_within(dataset, name, limits);
  const auto path = file_of(dataset);
  const auto where = fmt::format("[hdf5] {}: dataset '{}'", path.string(), printable(name));
  const Handle creation = creation_of(dataset, where);
  require_own_bytes(dataset, creation, where);
  if (H5Pget_layout(creation) != H5D_VIRTUAL) return;
  require(limits.reach == Hdf5Reach::folder, "{} is virtual, and this file must hold its elements itself", where);
  std::size_t sources = 0;
  check(H5Pget_virtual_count(creation, &sources), path, "no sources of a virtual dataset");
  std::set<std::pair<std::string, std::string>> seen;
  for (std::size_t i = 0; i < sources; ++i) {
    const auto file = source_file(creation, i);
    const auto source = text_of([&](char* out, std::size_t size) { return H5Pget_virtual_dsetname(creation, i, out, size); });
    if (seen.emplace(file, source).second) require_plain_source(dataset, path, where, file, source);
  }
}

std::vector<Handle> open_sources(hid_t dataset, std::span<const std::int64_t> begin, std::span<const std::int64_t> end) {
  std::vector<Handle> opened;
  const Handle creation(H5Dget_create_plist(dataset), H5Pclose);
  std::size_t sources = 0;
  if (H5Pget_layout(creation) == H5D_VIRTUAL) H5Pget_virtual_count(creation, &sources);
  const auto path = file_of(dataset);
  std::set<std::string> seen;
  for (std::size_t i = 0; i < sources; ++i)
    if (has_elements_in(creation, i, begin, end))
      if (const auto file = source_file(creation, i); seen.insert(file).second)
        opened.push_back(open_source(dataset, path, file));
  return opened;
}

}  // namespace mpigrad::hdf5
