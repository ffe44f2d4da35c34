#pragma once
// Files and folders that only this user may change. A folder such as /tmp is shared: another user may have put there what this
// process is about to believe. Functions that open check the open descriptor and follow no link in the last part of a path; the
// folders above it are the caller's to check (require_safe_place). Not installed.

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

// Errors of functions that open begin with "[who] PATH": it is a link, another user's, not a file (a folder), group or others may
// write to it (an access list counts as the group), or it cannot be opened.

// A folder of ours that is there.
Descriptor open_own_folder(const std::filesystem::path& path, const std::string& who);
// A folder of ours, which is made where it is not there, with the folders above it. Each folder that is made gets the mode 0700.
Descriptor make_own_folder(const std::filesystem::path& path, const std::string& who);
// A regular file of ours, opened with these flags of open(2). A pipe is no file; opening it does not wait.
Descriptor open_own_file(const std::filesystem::path& path, const std::string& who, int flags);
// A regular file of ours, which is made with the mode 0600 where it is not there.
Descriptor make_own_file(const std::filesystem::path& path, const std::string& who, int flags);
// A regular file of ours or of root, opened for reading: root can change all files of ours, too.
Descriptor open_trusted_file(const std::filesystem::path& path, const std::string& who);
// Takes from the group the right to write to a file or folder of ours, which an umask of 002 gives. The mode becomes 0700 of a
// folder and 0600 of a file. Nothing happens to a link, to what all users may write to, to a file with another name, to a folder
// with a sticky bit and to what another user owns. No Error.
void close_to_group(const std::filesystem::path& path);
// Error: other users could exchange what lies in this folder: its owner is neither this user nor root, or a group or all may
// write to it and it has no sticky bit. This check looks at the path, once, and follows links: the folder is one that the user
// has named. Where the folder is not there, the nearest one above it counts.
void require_safe_place(const std::filesystem::path& folder, const std::string& who);

}  // namespace mpigrad
