#include "models/trainer/folder/folder_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <utility>

#include "framework/base/new_file.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::tool {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// The lines of a lock's file: the process that holds it, its kernel, the number of heartbeats.
struct Holder {
  std::string name, kernel, beats;
  bool operator==(const Holder&) const = default;
};

// Each boot of a kernel has another id. Containers share their host's.
std::string this_kernel() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return file >> id ? id : "unknown";
}

std::string this_process() {
  std::string host(256, '\0');
  gethostname(host.data(), host.size() - 1);
  host.resize(host.find('\0'));
  const auto now = std::time(nullptr);
  return fmt::format("process {} on {}, since {:%Y-%m-%d %H:%M:%S} UTC", getpid(), host, fmt::gmtime(now));
}

// Reopens the file each time, so that a network file system asks its server.
Holder holder_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  Holder holder;
  std::getline(file, holder.name), std::getline(file, holder.kernel), std::getline(file, holder.beats);
  return holder;
}

bool is_file(int file, const std::filesystem::path& path) {
  struct stat mine {
  }, there{};
  return fstat(file, &mine) == 0 && lstat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
         mine.st_dev == there.st_dev;
}

// True if the file gets a heartbeat or another holder within the time limit.
bool lives(const std::filesystem::path& path, const Holder& holder, const FolderLockOptions& o) {
  const Seconds limit(3 * o.beat);
  if (!o.quiet)
    fmt::print(stderr, "{}: waits up to {:g} s for a sign of life from {}\n", path.parent_path().string(), limit.count(),
               holder.name);
  for (const auto begin = Clock::now(); Clock::now() - begin < limit;) {
    std::this_thread::sleep_for(std::min(Seconds(0.2), Seconds(o.beat / 4)));
    if (std::error_code none; !std::filesystem::exists(path, none)) return false;
    if (holder_of(path) != holder) return true;
  }
  return false;
}

constexpr const char* lock_file = ".lock";

}  // namespace

bool has_files(const std::filesystem::path& folder, const std::string& but) {
  std::error_code none;
  const std::filesystem::directory_iterator entries(folder, none);
  return std::any_of(begin(entries), end(entries), [&](const auto& entry) {
    const auto name = entry.path().filename().string();
    return name != lock_file && name != but && !is_part_name(name);
  });
}

FolderLock::FolderLock(const std::filesystem::path& folder, const FolderLockOptions& o)
    : path_(folder / (o.of + lock_file)), holder_(this_process()) {
  const auto refuse = [&](const Holder& holder) {
    throw UsageError(fmt::format("[folder] another process is at work in {}{}{}",
                                 (o.of.empty() ? folder : folder / o.of).string(), holder.name.empty() ? "" : ": ", holder.name));
  };
  bool told = false;
  for (const auto begin = Clock::now();;) {
    file_ = open_growing_file(path_, O_RDWR, "folder", true);
    const bool locked = flock(file_, LOCK_EX | LOCK_NB) == 0;
    const bool busy = !locked && errno == EWOULDBLOCK;
    const auto holder = holder_of(path_);
    const bool known = (locked || busy) && (holder.name.empty() || holder.kernel == this_kernel());
    bool over = false;
    if (busy && known) {
      close(file_);
      const double waited = Seconds(Clock::now() - begin).count();
      if (waited >= o.patience) refuse(holder);
      if (waited > 2 && !std::exchange(told, true) && !o.quiet)
        fmt::print(stderr, "{}: waits up to {:g} s for the end of {}\n", path_.parent_path().string(), o.patience, holder.name);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    if (!known && !holder.name.empty()) {
      if (lives(path_, holder, o)) {
        close(file_);
        refuse(holder_of(path_));
      }
      over = is_file(file_, path_);  // a new file: if the other host is alive, it sees that its file was replaced
    }
    if (take(over)) break;
    close(file_);
  }
  write(0);
  // Blocks all signals in the thread: other threads handle them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, seconds = o.beat] { keep_alive(seconds); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

FolderLock::~FolderLock() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wakes_.notify_all();
  thread_.join();
  if (held()) unlink(path_.c_str());
  close(file_);
}

bool FolderLock::held() const { return is_file(file_, path_); }

bool FolderLock::take(bool over) {
  if (!over) return is_file(file_, path_);
  NewFile mine(path_, "folder");
  static_cast<void>(flock(mine.descriptor(), LOCK_EX | LOCK_NB));
  mine.commit();
  require(dup3(mine.descriptor(), file_, O_CLOEXEC) >= 0, "[folder] {} cannot be written: {}", path_.string(),
          std::strerror(errno));
  return is_file(file_, path_);
}

void FolderLock::write(std::int64_t beats) const {
  // The text keeps its length, so that heartbeats continue on a full disk.
  const auto text = fmt::format("{}\n{}\n{:010}\n", holder_, this_kernel(), beats);
  const bool written = pwrite(file_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
                       (beats > 0 || ftruncate(file_, static_cast<off_t>(text.size())) == 0) && fdatasync(file_) == 0;
  const int reason = errno;
  if (beats > 0 || written) return;
  unlink(path_.c_str());
  close(file_);
  fail("[folder] {} cannot be written: {}", path_.string(), std::strerror(reason));
}

void FolderLock::keep_alive(double seconds) {
  std::unique_lock lock(mutex_);
  for (std::int64_t beats = 1; !wakes_.wait_for(lock, Seconds(seconds), [&] { return ends_; }); ++beats) write(beats);
}

}  // namespace mpigrad::tool
