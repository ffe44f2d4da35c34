#pragma once
// What the files of this folder share: handles that close themselves, error texts, types. All of it runs on the I/O thread.

#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1  // hdf5.h may include mpi.h, whose C++ bindings nobody needs
#endif
#include <hdf5.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "comm/hdf5/hdf5_file.h"
#include "comm/hdf5/io_thread.h"

namespace mpigrad::hdf5 {

// HDF5's own account of the last failure on one line, innermost first; empties the error stack.
std::string error_text();

class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close closer) : id_(id), close_(closer) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_), std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  operator hid_t() const { return id_; }
  // Gives up the handle without closing it.
  void release() { id_ = H5I_INVALID_HID; }
  // Closes now and reports what the library says about it.
  herr_t close() { return id_ >= 0 ? close_(std::exchange(id_, H5I_INVALID_HID)) : 0; }

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

// A file that cannot be closed, because nothing more of it can be written: nobody tries again, at the program's end neither.
void leave_open(hid_t file);

// Runs f on the I/O thread, with the library's own printing of errors switched off, and waits.
template <class F>
auto on_io_thread(F f) {
  return io_thread().run([&] {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    return f();
  });
}

// "[hdf5] PATH: what failed: HDF5's text" for negative results.
template <class T>
T check(T result, const std::filesystem::path& path, const std::string& what) {
  if (result < 0) {
    const auto text = error_text();
    fail("[hdf5] {}: {}{}{}", path.string(), what, text.empty() ? "" : ": ", text);
  }
  return result;
}

hid_t native_type(DType type);
hid_t file_type(DType type);  // little-endian

// Selects [begin, end) in `space`; returns the matching memory space. Error if it does not fit.
Handle select_box(hid_t space, std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
                  const std::filesystem::path& path, const std::string& dataset);

// An access list of class `kind` (H5P_LINK_ACCESS, H5P_DATASET_ACCESS) that follows links into other files only within the folder
// of the file that has them; `refused` gets the reason where one is not followed, and must outlive the list.
Handle access_within_folder(hid_t kind, std::string& refused);
// Error: elements that are not in the dataset's file itself, but in another one outside its folder or of no format.
void require_within_folder(hid_t dataset, const std::string& name);
bool is_within_folder(hid_t dataset, const std::string& name);

// For a dataset that cannot be read. Error: a filter of its chunks that this HDF5 does not have, by name and number.
void require_filters(hid_t dataset, const std::filesystem::path& path, const std::string& name);

// Room for unpacked chunks of a dataset.
struct ChunkRoom {
  std::size_t bytes = 0, slots = 0;
};
// What a read of the box [begin, end) needs so that the next one need not unpack the same chunks again: none if the chunks are
// not packed, or the box splits none of them.
ChunkRoom chunk_room(hid_t dataset, std::span<const std::int64_t> begin, std::span<const std::int64_t> end);
// Keeps a dataset that was opened with such room open until close_kept(), or until those that were read later need its room:
// all of this process have 256 MiB, or 1/64 of the memory that is available.
hid_t keep_open(hid_t file, const std::string& name, Handle dataset, const ChunkRoom& room);
hid_t kept_open(hid_t file, const std::string& name);  // negative: it is not kept
void close_kept(hid_t file);

// A file access list for all ranks of an "mpi" transport: parallel.cpp, or absent_parallel.cpp where HDF5 is built without MPI.
Handle parallel_access(const Transport& transport);

}  // namespace mpigrad::hdf5
