#pragma once
// Files that a program writes, in folders where others may have put links and pipes. Every writer of the tree goes through this
// file (tests/includes_test.cpp): a new file is a NewFile, a file that grows or is changed in its place a GrowingFile. Neither
// writes through a link, waits at a pipe, or changes a file that has another name, too. Only write_to_device() follows the
// system's own links. Not installed.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "framework/base/error.h"

namespace mpigrad {

// Under a name that is to be written there is something that no program of ours writes to.
class FileInTheWay : public Error {
 public:
  using Error::Error;
};

// Whether anything has that name, such as a link to nothing.
bool is_name_taken(const std::filesystem::path& path);

// Puts the data of the folder `temporary` on the disk and gives it the name `path`, in the same parent folder. Its files are on
// the disk. Errors begin with "[who] PATH".
void put_folder_in_place(const std::filesystem::path& temporary, const std::filesystem::path& path, const std::string& who);

// A new file, which stands under its name only when it is whole and on the disk. Until commit() its name is ".NAME.HEX.part" in
// the same folder, HEX being 16 digits; without commit() nothing remains. A file of that form that an interrupted attempt
// has left is removed by the next process that writes PATH. A lock on the open file says that its writer lives. Where there are
// no locks, and of another host, whose locks some file systems do not show, it is removed a day after its last change. The first
// four digits are those of the host, the others random.
class NewFile {
 public:
  // A link with the name `path` will be replaced. FileInTheWay: neither a link nor a regular file has that name. Error: no such
  // folder, no permission.
  NewFile(const std::filesystem::path& path, const std::string& who);
  // The file is made by `create(name)`, exclusively (O_EXCL), which returns a descriptor for this class to close.
  using Create = std::function<int(const std::filesystem::path& name)>;
  NewFile(const std::filesystem::path& path, const std::string& who, const Create& create);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  void write(std::span<const std::byte> bytes);
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }
  // All of the file is on the disk and in its place, or this is an Error and what was there before stays. More may be written.
  void commit();

  const std::filesystem::path& temporary() const { return temporary_; }
  int descriptor() const { return descriptor_; }  // for reading and writing

 private:
  std::filesystem::path path_, temporary_;
  std::string who_;
  int descriptor_ = -1;
  bool placed_ = false;
};

// Writes a whole text as a NewFile.
void write_new_file(const std::filesystem::path& path, const std::string& text, const std::string& who);

// Writes a text to one of the system's own links, pipes and devices, such as /dev/stdout.
void write_to_device(const std::filesystem::path& path, const std::string& text, const std::string& who);

// Opens a file that grows or is changed where it is, and makes it if there is none; returns a descriptor. `flags`: those of
// open(), such as O_WRONLY | O_TRUNC; the file loses its content after all checks only. FileInTheWay: the name is that of a link,
// a pipe or a folder, or the file has another owner (unless `of_others`) or another name, too. Error: it cannot be opened.
int open_growing_file(const std::filesystem::path& path, int flags, const std::string& who, bool of_others = false);

// A text file that open_growing_file() has opened.
class GrowingFile {
 public:
  GrowingFile(const std::filesystem::path& path, int flags, const std::string& who);
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;
  ~GrowingFile();

  // What is written is in the file when this returns. Error: not all of it could be written.
  void write(std::span<const std::byte> bytes);
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }
  int descriptor() const { return descriptor_; }

 private:
  std::filesystem::path path_;
  std::string who_;
  int descriptor_ = -1;
};

}  // namespace mpigrad
