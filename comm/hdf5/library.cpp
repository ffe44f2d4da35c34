// HDF5 as a whole: how it begins and ends in this process.

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "comm/hdf5/detail.h"

namespace mpigrad::hdf5 {

namespace {

// Files that could not be closed. Of the I/O thread, which has ended when the program does.
std::vector<hid_t> left;

void close_library() {
  if (left.empty()) {
    H5close();
    return;
  }
  // HDF5 would close these, too, and crash over what it cannot write. What the program itself has open is written none the less.
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

}  // namespace mpigrad::hdf5
