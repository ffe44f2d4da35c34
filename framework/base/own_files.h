#pragma once
// Files and folders that only this user may change. A folder such as /tmp is shared: another user may have put files there that
// this process would trust. The functions that open files check the open descriptor and follow no link in the last part of a
// path; the caller checks the folders above (require_safe_place). Not installed.

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <utility>

namespace mpigrad {

// An open file or folder.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();
  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

// Errors of functions that open begin with "[who] PATH": it is a link, belongs to another user, is not a file (a folder), is
// writable for group or others (an access list counts as the group), or cannot be opened.

// An existing folder of this user.
Descriptor open_own_folder(const std::filesystem::path& path, const std::string& who);
// A folder of this user, created if it does not exist, with the folders above it. Each new folder gets the mode 0700.
Descriptor make_own_folder(const std::filesystem::path& path, const std::string& who);
// A regular file of this user, opened with these flags of open(2). A pipe is an error; opening it does not wait.
Descriptor open_own_file(const std::filesystem::path& path, const std::string& who, int flags);
// A regular file of this user, created with the mode 0600 if it does not exist.
Descriptor make_own_file(const std::filesystem::path& path, const std::string& who, int flags);
// A regular file of this user or of root, opened for reading: root can change all files anyway.
Descriptor open_trusted_file(const std::filesystem::path& path, const std::string& who);
// Revokes the group's permission to write to a file or folder of this user, which an umask of 002 grants. The mode becomes 0700
// for a folder and 0600 for a file. Does nothing for a link, for anything that all users may write to, for a file with several
// hard links, for a folder with a sticky bit and for files of other users. Throws no Error.
void close_to_group(const std::filesystem::path& path);
// Error: other users could replace files in this folder: its owner is neither this user nor root, or a group or all users may
// write to it and it has no sticky bit. Checks the path once and follows links, because the user has named the folder. If the
// folder does not exist, checks the nearest existing folder above it.
void require_safe_place(const std::filesystem::path& folder, const std::string& who);

}  // namespace mpigrad
