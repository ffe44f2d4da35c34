#pragma once
// One program at a time in a folder of results.

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

namespace mpigrad::tool {

struct FolderLockOptions {
  std::string of{};  // one of the folder's files or folders, which alone is locked; empty: all of them
  // Seconds in which a process that is just ending may still leave the folder. A run that is killed and comes again needs some.
  double patience = 0;
  double beat = 5;  // seconds between two signs of life; three without one are a dead process
  bool quiet = false;
};

// The right to write into a folder, until the object or its process ends, however that ends. It is the file ".lock" there (for
// one file NAME, "NAME.lock"), which names the holder, has a sign of life every few seconds and is removed at the end. One rank
// of a program takes it.
//
// A lock that is left over is told from one that is held. Of a process under the same kernel the kernel itself knows (flock). Of
// another host it may not: file systems forward flock to other hosts, or do not, or keep the lock of a host that has died. There
// the signs of life count: this process waits for three of them, and takes the lock where none comes. So a process that was
// stopped for so long loses its lock to another host; it notices at its end (held()).
//
// Errors: UsageError, another process is at work there; Error, the file cannot be written.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder, const FolderLockOptions& options = {});
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // False: the folder or the lock was removed, or another process has taken it over.
  bool held() const;

 private:
  // False: the file was removed or replaced meanwhile.
  bool take(bool over);
  void write(std::int64_t beats) const;
  void keep_alive(double seconds);

  std::filesystem::path path_;
  std::string holder_;  // this process, as the file names it
  int file_ = -1;
  std::mutex mutex_;
  std::condition_variable wakes_;
  bool ends_ = false;
  std::thread thread_;
};

// Whether there is anything else in a folder, where it exists; a file or folder `but` does not count.
bool has_files(const std::filesystem::path& folder, const std::string& but = {});

}  // namespace mpigrad::tool
