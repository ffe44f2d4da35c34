#pragma once
// One program at a time in a folder of results.

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

namespace mpigrad::tool {

struct FolderLockOptions {
  std::string of{};  // the only file or folder in it that is locked; empty: all of them
  // Seconds to wait for a process that is just ending and still holds the folder. A run that is killed and restarted needs some.
  double patience = 0;
  double beat = 5;  // seconds between two heartbeats; a process that misses three is taken for dead
  bool quiet = false;
};

// The exclusive right to write into a folder, for the lifetime of this object and of its process, even if the process is killed.
// It is the file ".lock" there (for one file NAME, "NAME.lock"), which names the holder, gets a heartbeat every few seconds and
// is removed at the end. One rank of a program takes it.
//
// A lock may be left over by a dead process. For a process under the same kernel, the kernel decides (flock). For another host it
// cannot decide reliably: some file systems do not forward flock to other hosts, and some keep the lock of a host that has died.
// There the heartbeats count: this process waits for three of them, and takes the lock if none comes. A process that was stopped
// for that long thus loses its lock to another host; it notices when it ends (held()).
//
// Errors: UsageError, another process works there; Error, the file cannot be written.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder, const FolderLockOptions& options = {});
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // False: the folder or the lock was removed, or another process has taken the lock over.
  bool held() const;

 private:
  // False: the file was removed or replaced in the meantime.
  bool take(bool over);
  void write(std::int64_t beats) const;
  void keep_alive(double seconds);

  std::filesystem::path path_;
  std::string holder_;  // this process, as named in the file
  int file_ = -1;
  std::mutex mutex_;
  std::condition_variable wakes_;
  bool ends_ = false;
  std::thread thread_;
};

// True if the folder exists and has any entry other than `but` and unfinished files of killed processes.
bool has_files(const std::filesystem::path& folder, const std::string& but = {});

}  // namespace mpigrad::tool
