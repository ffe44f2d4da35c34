#pragma once
// One program at a time in a folder of results.

#include <filesystem>

namespace mpigrad::tool {

// Held until it goes or its process ends, however that ends: a lock on the file ".lock" in the folder, which stays there. Of one
// rank. File systems that know no locks let several in; that is the user's to see. Errors: another process has it ("another
// process is at work in ..."), the file cannot be made.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace mpigrad::tool
