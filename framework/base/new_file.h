#pragma once
// Files that a program writes, in folders where others may have put links and pipes. All code that writes files uses this header
// (tests/includes_test.cpp): a new file is a NewFile, a file that grows or is changed in place is a GrowingFile. Neither writes
// through a link, waits at a pipe, or changes a file with several hard links. Only write_to_device() follows the system's own
// links. Not installed.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "framework/base/error.h"

namespace mpigrad {

// The name of a file to be written belongs to something that this library does not write to.
class FileInTheWay : public Error {
 public:
  using Error::Error;
};

// True if anything has that name, including a dangling link.
bool is_name_taken(const std::filesystem::path& path);

// Whether a NewFile could have this name before its commit().
bool is_part_name(std::string_view name);

// Syncs the folder `temporary` to the disk and renames it to `path`, in the same parent folder. Its files must have been synced
// before. Errors begin with "[who] PATH".
void put_folder_in_place(const std::filesystem::path& temporary, const std::filesystem::path& path, const std::string& who);

// A new file, which gets its name only when it is complete and on the disk. Until commit() its name is ".NAME.HEX.part" in the
// same folder, HEX being 16 digits; without commit() nothing remains. The first four digits stand for the host, the others are
// random. The next process that writes PATH removes such a file that an interrupted attempt has left, unless a lock on it says
// that its writer still runs. Without locks, and if the file is from another host, whose locks some file systems do not show, it
// is removed a day after its last change.
class NewFile {
 public:
  // A link named `path` will be replaced. FileInTheWay: neither a link nor a regular file has that name. Error: the folder does
  // not exist, no permission.
  NewFile(const std::filesystem::path& path, const std::string& who);
  // `create(name)` makes the file, exclusively (O_EXCL), and returns a descriptor, which this class closes.
  using Create = std::function<int(const std::filesystem::path& name)>;
  NewFile(const std::filesystem::path& path, const std::string& who, const Create& create);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  void write(std::span<const std::byte> bytes);
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }
  // Syncs the file to the disk and renames it to its final name. Error: it failed, and the old file, if any, is unchanged. More
  // may be written afterwards.
  void commit();

  const std::filesystem::path& temporary() const { return temporary_; }
  int descriptor() const { return descriptor_; }  // for reading and writing

 private:
  std::filesystem::path path_, temporary_;
  std::string who_;
  int descriptor_ = -1;
  bool placed_ = false;
};

// Writes a text as a NewFile.
void write_new_file(const std::filesystem::path& path, const std::string& text, const std::string& who);

// Writes a text to a link, pipe or device of the system, such as /dev/stdout.
void write_to_device(const std::filesystem::path& path, const std::string& text, const std::string& who);

// Opens a file that grows or is changed in place, creates it if it does not exist, and returns a descriptor. `flags` are those of
// open(), such as O_WRONLY | O_TRUNC; the file is truncated only after all checks. FileInTheWay: `path` is a link, a pipe or a
// folder, or the file has another owner (unless `of_others`) or several hard links. Error: it cannot be opened.
int open_growing_file(const std::filesystem::path& path, int flags, const std::string& who, bool of_others = false);

// A text file that open_growing_file() has opened.
class GrowingFile {
 public:
  GrowingFile(const std::filesystem::path& path, int flags, const std::string& who);
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;
  ~GrowingFile();

  // The bytes are in the file when this returns. Error: not all of it could be written.
  void write(std::span<const std::byte> bytes);
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }
  int descriptor() const { return descriptor_; }

 private:
  std::filesystem::path path_;
  std::string who_;
  int descriptor_ = -1;
};

}  // namespace mpigrad
