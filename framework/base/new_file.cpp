#include "framework/base/new_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>
#include <vector>

#include "framework/base/fnv.h"

namespace mpigrad {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view part_suffix = ".part";
constexpr std::size_t part_digits = 16, longest_name = 200;

struct stat status_of(int descriptor) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 ? status : decltype(status){};
}

// Whether `path`, without following links, is a name of the open file.
bool is_named(int descriptor, const fs::path& path) {
  struct stat there {};
  const auto mine = status_of(descriptor);
  return lstat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

const char* kind_of(mode_t mode) {
  if (S_ISLNK(mode)) return "a link, not a regular file";
  if (S_ISFIFO(mode)) return "a pipe, not a regular file";
  if (S_ISDIR(mode)) return "a folder, not a regular file";
  if (S_ISSOCK(mode)) return "a socket, not a regular file";
  return "a device, not a regular file";
}

[[noreturn]] void refuse_file(const fs::path& path, const std::string& who, const std::string& what) {
  throw FileInTheWay(fmt::format("[{}] {} is in the way: {}", who, path.string(), what));
}

// Returns false if nothing has that name; links are not followed. FileInTheWay: it is not a regular file.
bool require_regular(const fs::path& path, const std::string& who, bool or_link) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return false;
  if (!S_ISREG(status.st_mode) && !(or_link && S_ISLNK(status.st_mode))) refuse_file(path, who, kind_of(status.st_mode));
  return true;
}

void write_to(int descriptor, std::span<const std::byte> bytes, const fs::path& path, const std::string& who) {
  while (!bytes.empty()) {
    const auto count = ::write(descriptor, bytes.data(), std::min<std::size_t>(bytes.size(), 1 << 30));
    if (count < 0 && errno == EINTR) continue;
    require(count > 0, "[{}] {} could not be written completely: {}", who, path.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

fs::path folder_of_file(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

// Syncs the rename itself. Not every file system supports this; the file is complete in any case.
void synchronise_folder(const fs::path& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  static_cast<void>(fsync(descriptor));
  close(descriptor);
}

void rename_to(const fs::path& temporary, const fs::path& path, const std::string& who) {
  std::error_code error;
  fs::rename(temporary, path, error);
  require(!error, "[{}] {}: cannot be renamed from {}: {}", who, path.string(), temporary.string(), error.message());
  synchronise_folder(folder_of_file(path));
}

// ---- temporary names

// The beginning of the temporary names of a file, cut so that the longest allowed name has room for the rest.
std::string part_prefix(const fs::path& path) {
  auto name = path.filename().string();
  if (name.size() > longest_name) name.resize(longest_name);
  return fmt::format(".{}.", name);
}

// The first digits identify this host.
constexpr std::size_t host_digits = 4;
std::string host_part() {
  std::array<char, 256> name{};
  static_cast<void>(gethostname(name.data(), name.size() - 1));
  return fmt::format("{:04x}", fnv1a(fnv_start, std::string_view(name.data())) & 0xffff);
}

fs::path draw_part_name(const fs::path& path, const std::string& who) {
  std::uint64_t random = 0;
  ssize_t drawn = 0;
  do drawn = getrandom(&random, sizeof(random), 0);
  while (drawn < 0 && errno == EINTR);
  require(drawn == sizeof(random), "[{}] {}: no random name: {}", who, path.string(), std::strerror(errno));
  return folder_of_file(path) / fmt::format("{}{}{:012x}{}", part_prefix(path), host_part(), random >> 16, part_suffix);
}

// Locks one byte after all data: the parallel driver of HDF5 and HDF5 itself may lock the data.
enum class Lock { mine, taken, unavailable };
Lock lock_part(int descriptor, short type = F_WRLCK) {
  struct flock lock {};
  lock.l_type = type, lock.l_whence = SEEK_SET, lock.l_start = off_t{1} << 62, lock.l_len = 1;
  if (fcntl(descriptor, F_OFD_SETLK, &lock) == 0) return Lock::mine;
  return errno == EAGAIN || errno == EACCES ? Lock::taken : Lock::unavailable;
}

// Some file systems do not show locks of other hosts, so a file of another host is removed only if it is also old.
void remove_if_abandoned(const fs::path& name, bool of_this_host) {
  const int descriptor = open(name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return;
  constexpr std::time_t day = 24 * 60 * 60;
  const auto status = status_of(descriptor);
  if (S_ISREG(status.st_mode) && status.st_uid == geteuid() && status.st_nlink == 1) {
    const auto lock = lock_part(descriptor);
    const bool old = std::time(nullptr) - status.st_mtime > day;
    const bool free = lock != Lock::taken && (old || (lock == Lock::mine && of_this_host));
    if (free && is_named(descriptor, name)) unlink(name.c_str());
  }
  close(descriptor);
}

// A process searches a folder once, not for each file that it writes: a folder may have 100,000 files.
void remove_abandoned(const fs::path& path) {
  static std::mutex mutex;
  static auto& found = *new std::map<fs::path, std::vector<std::string>>;
  const std::lock_guard lock(mutex);
  std::error_code error;
  const auto folder = folder_of_file(fs::absolute(path, error));
  const auto [place, is_new] = found.try_emplace(folder);
  auto& names = place->second;
  if (is_new)
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
      if (const auto name = entry->path().filename().string(); is_part_name(name)) names.push_back(name);
  const auto prefix = part_prefix(path), host = host_part();
  for (const auto& name : names)
    if (name.starts_with(prefix) && name.size() == prefix.size() + part_digits + part_suffix.size())
      remove_if_abandoned(folder / name, name.compare(prefix.size(), host_digits, host) == 0);
}

}  // namespace

bool is_part_name(std::string_view name) {
  if (!name.starts_with('.') || !name.ends_with(part_suffix)) return false;
  name.remove_suffix(part_suffix.size());
  if (name.size() < part_digits + 2 || name[name.size() - part_digits - 1] != '.') return false;
  name.remove_prefix(name.size() - part_digits);
  return name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_name_taken(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

void put_folder_in_place(const fs::path& temporary, const fs::path& path, const std::string& who) {
  synchronise_folder(temporary);
  rename_to(temporary, path, who);
}

NewFile::NewFile(const fs::path& path, const std::string& who)
    : NewFile(path, who, [&](const fs::path& name) {
        const int made = open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        require(made >= 0, "[{}] {} cannot be written: {}", who, path.string(), std::strerror(errno));
        return made;
      }) {}

NewFile::NewFile(const fs::path& path, const std::string& who, const Create& create) : path_(path), who_(who) {
  require_regular(path, who, true);
  remove_abandoned(path);
  for (int attempt = 0; attempt < 10; ++attempt) {
    temporary_ = draw_part_name(path, who);
    try {
      descriptor_ = create(temporary_);
    } catch (...) {
      unlink(temporary_.c_str());
      throw;
    }
    // Until the file is locked, another process may consider it abandoned and remove it.
    if (lock_part(descriptor_) != Lock::taken && is_named(descriptor_, temporary_)) return;
    unlink(temporary_.c_str());
    close(descriptor_);
  }
  fail("[{}] {} cannot be written: new files disappear from its folder", who, path.string());
}

NewFile::~NewFile() {
  if (!placed_) unlink(temporary_.c_str());
  close(descriptor_);
}

void NewFile::write(std::span<const std::byte> bytes) { write_to(descriptor_, bytes, path_, who_); }

void NewFile::commit() {
  require(fsync(descriptor_) == 0, "[{}] {}: cannot be completed: {}", who_, path_.string(), std::strerror(errno));
  require(is_named(descriptor_, temporary_), "[{}] {}: cannot be completed: {} was removed or replaced", who_, path_.string(),
          temporary_.string());
  require_regular(path_, who_, true);
  rename_to(temporary_, path_, who_);
  placed_ = true;
  lock_part(descriptor_, F_UNLCK);
}

void write_new_file(const fs::path& path, const std::string& text, const std::string& who) {
  NewFile file(path, who);
  file.write(text);
  file.commit();
}

void write_to_device(const fs::path& path, const std::string& text, const std::string& who) {
  const int device = open(path.c_str(), O_WRONLY | O_TRUNC | O_NOCTTY | O_CLOEXEC);
  require(device >= 0, "[{}] {} cannot be written: {}", who, path.string(), std::strerror(errno));
  const struct Close {
    int descriptor;
    ~Close() { close(descriptor); }
  } closes{device};
  write_to(device, std::as_bytes(std::span(text)), path, who);
}

namespace {
// The owner of new files; some file systems give all files to one owner.
uid_t owner_of_new_files(const fs::path& path, const std::string& who) {
  return status_of(NewFile(path, who).descriptor()).st_uid;
}
}  // namespace

int open_growing_file(const fs::path& path, int flags, const std::string& who, bool of_others) {
  constexpr int safely = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const int wanted = (flags & ~O_TRUNC) | safely;
  // Other processes may create and remove the file meanwhile.
  for (int attempt = 0;; ++attempt) {
    const bool there = require_regular(path, who, false);
    const int file = there ? open(path.c_str(), wanted) : open(path.c_str(), wanted | O_CREAT | O_EXCL, 0666);
    const int reason = errno;
    if (file < 0 && attempt < 100 && (reason == (there ? ENOENT : EEXIST) || reason == ELOOP)) continue;
    require(file >= 0, "[{}] {} cannot be written: {}", who, path.string(), std::strerror(reason));
    const auto status = status_of(file);
    try {
      if (!S_ISREG(status.st_mode)) refuse_file(path, who, kind_of(status.st_mode));
      if (there && !of_others && status.st_uid != geteuid() && status.st_uid != owner_of_new_files(path, who))
        refuse_file(path, who, "a file of another user");
      if (status.st_nlink > 1) refuse_file(path, who, fmt::format("a file with {} names (hard links)", status.st_nlink));
      require((flags & O_TRUNC) == 0 || ftruncate(file, 0) == 0, "[{}] {} cannot be written: {}", who, path.string(),
              std::strerror(errno));
    } catch (...) {
      close(file);
      throw;
    }
    static_cast<void>(fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK));
    return file;
  }
}

GrowingFile::GrowingFile(const fs::path& path, int flags, const std::string& who)
    : path_(path), who_(who), descriptor_(open_growing_file(path, flags, who)) {}

GrowingFile::~GrowingFile() { close(descriptor_); }

void GrowingFile::write(std::span<const std::byte> bytes) { write_to(descriptor_, bytes, path_, who_); }

}  // namespace mpigrad
