#pragma once
// Files and folders that only this user may change. A folder such as /tmp is shared: another user may have put there what this
// process is about to believe. All checks look at open descriptors, and no link is followed. Not installed.

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

// Errors of all functions begin with "[who] PATH": it is a link, another user's, not a file (a folder), group or others may write
// to it (an access list counts as the group), or it cannot be opened.

// A folder of ours that is there.
Descriptor open_own_folder(const std::filesystem::path& path, const std::string& who);
// The same of a folder that is made where it is not there, with the folders above it. What is made gets the mode 0700.
Descriptor make_own_folder(const std::filesystem::path& path, const std::string& who);
// A regular file of ours, opened with these flags of open(2). A pipe is no file; opening it does not wait.
Descriptor open_own_file(const std::filesystem::path& path, const std::string& who, int flags);
// The same of a file that is made where it is not there, with the mode 0600.
Descriptor make_own_file(const std::filesystem::path& path, const std::string& who, int flags);
// Error: other users could exchange what lies in this folder, as all of them or a group may write to it and it has no sticky bit.
// Here links are followed: the folder is one that the user has named. Of a folder that is not there the nearest one above counts.
void require_safe_place(const std::filesystem::path& folder, const std::string& who);

}  // namespace mpigrad
