#pragma once
// Code that the files of this folder share: handles that close themselves, error texts, types. All of it runs on the I/O thread.

#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1  // hdf5.h may include mpi.h, whose C++ bindings are not used
#endif
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <hdf5.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/hdf5/hdf5_file.h"
#include "comm/hdf5/io_thread.h"

namespace mpigrad::hdf5 {

// HDF5's own description of the last failure on one line, innermost first; empties the error stack.
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

// Gives up a file that cannot be closed because nothing more can be written to it: closing is not tried again, not even at the
// program's end.
void leave_open(hid_t file);

// Runs f on the I/O thread, with the library's own printing of errors switched off, and waits. `here`: on this thread, while the
// I/O thread does nothing.
template <class F>
auto on_io_thread(F f, bool here = false) {
  const auto job = [&] {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    return f();
  };
  return here ? io_thread().run_here(job) : io_thread().run(job);
}

// Throws "[hdf5] PATH: what failed: HDF5's text" for negative results.
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

// Restricts which other files a file may refer its readers to.
struct Limits {
  Hdf5Reach reach = Hdf5Reach::file;
  std::filesystem::path path{}, folder{};  // of the file that is read, and of its folder without links
  std::string refused{};                   // why a link was not followed
};
Limits limits_of(const std::filesystem::path& path, Hdf5Reach reach);
// An access list of class `kind` (H5P_LINK_ACCESS, H5P_DATASET_ACCESS) that follows links into other files as far as the limits
// allow. The limits must outlive the list and the datasets that are opened with it.
Handle access_within(hid_t kind, Limits& limits);
// Error: an object that HDF5 has found outside the limits.
void require_within(hid_t object, const std::string& name, const Limits& limits);
// Error: a dataset outside the limits; elements that are not in the dataset's file but in a file without a format (external
// storage), or outside the limits, or in a virtual dataset; fewer bytes than the elements take.
void require_elements_within(hid_t dataset, const std::string& name, const Limits& limits);

// The files of those sources of a virtual dataset that have elements of the box [begin, end), or of all. HDF5 reads zeros for a
// source file that it cannot open; opening the files first turns that into an Error.
std::vector<Handle> open_sources(hid_t dataset, std::span<const std::int64_t> begin, std::span<const std::int64_t> end);

// The bytes that `count` texts of the variable-length `type` claim together; negative: they cannot be read. read(type, out) reads
// the texts as another type.
double claimed_bytes(hid_t type, std::size_t count, const std::function<herr_t(hid_t, void*)>& read);

// `count` texts of a type in memory, of fixed or variable length.
std::vector<std::string> texts_in(const void* memory, hid_t type, std::size_t count);

// A file access list for reading. All reads of this process use the same one, so that a file can be open twice.
Handle file_access();
Hdf5Dataset describe(hid_t dataset, const std::string& name);
// All datasets whose elements are within the limits; other datasets are an Error where the file may not refer to other files.
std::vector<Hdf5Dataset> list_datasets(hid_t file, Limits limits);

// Called for a dataset that cannot be read. Error: a filter of its chunks that this HDF5 does not have, by name and number.
void require_filters(hid_t dataset, const std::filesystem::path& path, const std::string& name);

// Room for unpacked chunks of a dataset.
struct ChunkRoom {
  std::size_t bytes = 0, slots = 0;
};
// The room in which a read of the box [begin, end) keeps unpacked chunks for the next read: none if the chunks are not packed, or
// the box splits no chunk.
ChunkRoom chunk_room(hid_t dataset, std::span<const std::int64_t> begin, std::span<const std::int64_t> end);
// Keeps a dataset that was opened with such room open until close_kept(), or until datasets that were read later need its room:
// all of this process together have 256 MiB, or 1/64 of the memory that is available.
hid_t keep_open(hid_t file, const std::string& name, Handle dataset, const ChunkRoom& room);
hid_t kept_open(hid_t file, const std::string& name);  // negative: it is not kept
void close_kept(hid_t file);

// True if the ranks of this transport can write one file together: those of "mpi", unless HDF5 is built without MPI.
bool has_parallel_driver(const Transport& transport);
// A file access list for all ranks of such a transport. parallel.cpp, or absent_parallel.cpp where HDF5 is built without MPI.
Handle parallel_access(const Transport& transport);
// True if MPI takes calls of the program's first thread only, which HDF5 makes for a parallel file.
bool parallel_calls_here();

}  // namespace mpigrad::hdf5
