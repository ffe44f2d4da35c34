#pragma once
// Files that stand under their names only when they are whole and on the disk: whatever replaces a file, or makes one that others
// rely on, ends with put_in_place(). Not installed.

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>

namespace mpigrad {

// What is written under the name `temporary` gets the name `path`, in the same folder, instead of what has it: first its data go
// to the disk, so that a name never stands for data that a power failure has taken, and then the name. A file, or a folder whose
// files are on the disk. Errors begin with "[who] PATH".
void put_in_place(const std::filesystem::path& temporary, const std::filesystem::path& path, const std::string& who);

// Written as PATH.part until commit(); without that, nothing remains. What an interrupted attempt left behind is replaced.
class NewFile {
 public:
  // Errors: no such folder, a link or a pipe under the temporary name.
  NewFile(const std::filesystem::path& path, const std::string& who);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  void write(std::span<const std::byte> bytes);
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }
  // All of it is on the disk and in its place, or this is an Error and what was there before stays.
  void commit();

 private:
  void check(bool good) const;

  std::filesystem::path path_, part_;
  std::string who_;
  std::FILE* file_ = nullptr;
};

// A whole text.
void write_new_file(const std::filesystem::path& path, const std::string& text, const std::string& who);

}  // namespace mpigrad
