// Opening and closing HDF5 in this process, and its error messages.

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "comm/hdf5/detail.h"

namespace mpigrad::hdf5 {

namespace {

// Files that could not be closed. Used by the I/O thread, which has ended when the program does.
std::vector<hid_t> left;

void close_library() {
  if (left.empty()) {
    H5close();
    return;
  }
  // HDF5 would close these, too, and crash because it cannot write them. Other files that the program has open are still written.
  std::vector<hid_t> open(static_cast<std::size_t>(std::max<ssize_t>(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_FILE), 0)));
  open.resize(
      static_cast<std::size_t>(std::max<ssize_t>(H5Fget_obj_ids(H5F_OBJ_ALL, H5F_OBJ_FILE, open.size(), open.data()), 0)));
  for (const hid_t file : open)
    if (std::find(left.begin(), left.end(), file) == left.end()) H5Fflush(file, H5F_SCOPE_LOCAL);
}

}  // namespace

bool open_library() {
  static const bool ours = [] {
    const bool first = H5dont_atexit() >= 0;
    H5open();
    return first;
  }();
  return ours;
}

void close_library_at_exit() {
  if (open_library()) std::atexit(close_library);
}

void leave_open(hid_t file) { left.push_back(file); }

namespace {

// The event and the system's reason from HDF5's text about a failed read or write, without time, addresses and lengths.
std::string reason_of(const std::string& text) {
  const std::string key = "error message = '";
  const auto details = text.find(": time = "), reason = text.find(key);
  if (details == std::string::npos || reason == std::string::npos) return text;
  const auto begin = reason + key.size();
  return text.substr(0, details) + ": " + text.substr(begin, text.find('\'', begin) - begin);
}

}  // namespace

std::string error_text() {
  std::string text;
  const auto collect = [](unsigned depth, const H5E_error2_t* entry, void* data) -> herr_t {
    // The innermost two entries say what happened; the others only name HDF5's own layers.
    if (depth < 2 && entry->desc != nullptr)
      *static_cast<std::string*>(data) += (depth == 0 ? "" : "; ") + reason_of(entry->desc);
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect, &text);
  H5Eclear2(H5E_DEFAULT);
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.find("lock file") != std::string::npos)
    text += "; another program has it open, or its file system has no locks: then set HDF5_USE_FILE_LOCKING=FALSE";
  return text;
}

}  // namespace mpigrad::hdf5
