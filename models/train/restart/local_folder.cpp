#include "models/train/restart/local_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>

#include "framework/base/error.h"
#include "framework/base/new_file.h"
#include "framework/base/printable.h"

namespace mpigrad {

namespace fs = std::filesystem;

namespace {

constexpr const char *mark_name = ".training", *folder_prefix = "mpigrad-", *who = "local copies";

// The lines of ".training".
struct Mark {
  std::string training, host, file;
  std::string place;  // place_of_results(): in a container, or before a mount, the same path may be another folder
};

std::string this_host() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Device and inode of the parent of the folder of results, and the device of the folder of results, which may be a mount point.
// Both devices are the same if the folder of results no longer exists.
std::string place_of_results(const fs::path& file) {
  struct stat above {
  }, results{};
  if (stat(file.parent_path().parent_path().c_str(), &above) != 0) return "unknown";
  const auto device = stat(file.parent_path().c_str(), &results) == 0 ? results.st_dev : above.st_dev;
  return fmt::format("{} {} {}", above.st_dev, above.st_ino, device);
}

std::optional<Mark> read_mark(const Descriptor& file) {
  std::string text(1 << 14, '\0');
  const auto bytes = pread(file.get(), text.data(), text.size(), 0);
  std::istringstream lines(text.substr(0, static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))));
  Mark mark;
  for (auto* line : {&mark.training, &mark.host, &mark.file, &mark.place})
    if (!std::getline(lines, *line)) return std::nullopt;
  return mark;
}

std::string mark_text(const TrainingName& training) {
  const auto file = fs::absolute(training.file).lexically_normal();
  return fmt::format("{}\n{}\n{}\n{}\n", training.name, this_host(), file.string(), place_of_results(file));
}

// Writes the file so that it is complete from the beginning and never replaced: locks belong to the file, not to its name.
void write_mark(const fs::path& folder, const TrainingName& training) {
  static std::atomic<int> number = 0;
  const auto temporary = folder / fmt::format("{}.{}.{}", mark_name, getpid(), number++);
  const auto text = mark_text(training);
  const auto written = make_own_file(temporary, who, O_WRONLY | O_EXCL);
  const bool whole = write(written.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool placed = whole && (link(temporary.c_str(), (folder / mark_name).c_str()) == 0 || errno == EEXIST);
  const int reason = errno;
  unlink(temporary.c_str());
  require(placed, "[{}] {} cannot be written: {}", who, (folder / mark_name).string(), std::strerror(reason));
}

void require_training(const Descriptor& file, const fs::path& folder, const TrainingName& training) {
  const auto mark = read_mark(file);
  require(mark && mark->training == training.name, "[{}] {} is not of this training, {}, but of {}", who, folder.string(),
          training.name, mark ? mark->training : "none");
}

// Returns false if another process has the lock, and `unknown` if the file system has no locks.
bool locked(const Descriptor& file, int kind, bool unknown) {
  return flock(file.get(), kind | LOCK_NB) == 0 || (errno != EWOULDBLOCK && unknown);
}

}  // namespace

fs::path local_folder(const fs::path& disk, const std::string& training) { return disk / (folder_prefix + training); }

LocalFolder::LocalFolder(const fs::path& folder, const TrainingName& training) {
  require_safe_place(folder.parent_path(), who);
  constexpr auto patience = std::chrono::seconds(10);
  for (const auto begin = std::chrono::steady_clock::now();;) {
    const auto opened = make_own_folder(folder, who);
    require(fchmod(opened.get(), 0700) == 0, "[{}] {}: the permissions of other users cannot be removed: {}", who,
            folder.string(), std::strerror(errno));
    const auto path = folder / mark_name;
    if (!is_name_taken(path)) write_mark(folder, training);
    mark_ = open_own_file(path, who, O_RDWR);
    // Another training of this user may be removing the folder as left over.
    struct stat here {
    }, there{};
    if (locked(mark_, LOCK_SH, true) && fstat(mark_.get(), &here) == 0 && stat(path.c_str(), &there) == 0 &&
        here.st_ino == there.st_ino)
      break;
    require(std::chrono::steady_clock::now() - begin < patience, "[{}] another process keeps {}", who, path.string());
    mark_ = Descriptor();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  require_training(mark_, folder, training);
  // The folder of results may have been moved. All ranks of the node write the same text.
  const auto text = mark_text(training);
  require(pwrite(mark_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
              ftruncate(mark_.get(), static_cast<off_t>(text.size())) == 0,
          "[{}] {} cannot be written: {}", who, (folder / mark_name).string(), std::strerror(errno));
}

void require_local_folder(const fs::path& folder, const TrainingName& training) {
  require_safe_place(folder.parent_path(), who);
  if (!is_name_taken(folder)) return;
  const auto opened = open_own_folder(folder, who);
  if (const auto path = folder / mark_name; is_name_taken(path))
    require_training(open_own_file(path, who, O_RDONLY), folder, training);
}

namespace {

// Lists entries of a folder. Returns false if not all could be listed.
bool list_entries(const fs::path& folder, std::vector<fs::path>& entries) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    entries.push_back(entry->path());
  return !error;
}

bool is_own_folder(const fs::path& path) {
  struct stat about {};
  return lstat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == geteuid();
}

}  // namespace

void remove_local_folder(const fs::path& folder) {
  std::vector<fs::path> entries;
  list_entries(folder, entries);
  std::error_code none;
  for (const auto& entry : entries)
    if (!fs::is_directory(fs::symlink_status(entry, none))) fs::remove(entry, none);
  fs::remove(folder, none);
}

namespace {

// Returns "" if no regular file of this user has that name or it cannot be read. Does not wait at a pipe.
std::string read_training_name(const fs::path& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat about {};
  if (!file || fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) || about.st_uid != geteuid()) return {};
  std::array<char, 256> text{};
  std::string name;
  if (const auto bytes = pread(file.get(), text.data(), text.size(), 0); bytes > 0)
    std::istringstream(std::string(text.data(), static_cast<std::size_t>(bytes))) >> name;
  return name;
}

// Whether the copies of a training are to be removed or stay, and why.
struct Decision {
  bool removes = false;
  std::string why;
};

Decision decide_on_copies(const Mark& mark, const std::function<bool(const fs::path& results)>& finished) {
  const Decision kept{.why = "--resume can continue from them"}, gone{.removes = true, .why = "which is no longer there"};
  const fs::path file = mark.file, results = file.parent_path();
  const auto status = [](const fs::path& path) {
    std::error_code none;
    return fs::status(path, none).type();
  };
  if (place_of_results(file) != mark.place) return {.why = "that path meant another place when they were made"};
  const auto name = read_training_name(file);
  if (name == mark.training) return finished(results) ? Decision{.removes = true, .why = "which has finished"} : kept;
  if (!name.empty()) return {.removes = true, .why = "which was replaced by another training"};
  if (status(file) != fs::file_type::not_found) return kept;
  if (status(results) == fs::file_type::directory) return gone;
  if (status(results) != fs::file_type::not_found) return kept;
  std::vector<fs::path> siblings;
  if (!list_entries(results.parent_path(), siblings)) return kept;
  const bool renamed = std::any_of(siblings.begin(), siblings.end(), [&](const fs::path& sibling) {
    return is_own_folder(sibling) && read_training_name(sibling / file.filename()) == mark.training;
  });
  return renamed ? kept : gone;
}

}  // namespace

std::vector<std::string> clear_local_folders(const fs::path& disk, const std::string& own,
                                             const std::function<bool(const fs::path& results)>& finished) {
  std::vector<std::string> told;
  std::vector<fs::path> folders;
  if (!list_entries(disk, folders) && is_name_taken(disk))
    told.push_back(fmt::format("warning: {} cannot be listed", disk.string()));
  std::erase_if(folders, [&](const fs::path& path) {
    return !path.filename().string().starts_with(folder_prefix) || path == local_folder(disk, own) || !is_own_folder(path);
  });
  std::sort(folders.begin(), folders.end());
  std::map<std::string, int> of_hosts;
  for (const auto& folder : folders) try {
      const auto opened = open_own_folder(folder, who);
      const auto file = open_own_file(folder / mark_name, who, O_RDWR);
      const auto mark = read_mark(file);
      require(mark.has_value(), "[{}] {} does not name a training", who, (folder / mark_name).string());
      if (mark->host != this_host()) {
        ++of_hosts[mark->host];
        continue;
      }
      if (!locked(file, LOCK_EX, false)) continue;
      const auto of =
          fmt::format("{}: local copies of the training in {}", folder.string(), fs::path(mark->file).parent_path().string());
      const auto decision = decide_on_copies(*mark, finished);
      if (!decision.removes) {
        told.push_back(fmt::format("{} are kept: {}", of, decision.why));
        continue;
      }
      remove_local_folder(folder);
      told.push_back(
          fmt::format("{}, {}: {}", of, decision.why, is_name_taken(folder) ? "not all of them could be removed" : "removed"));
    } catch (const std::exception& error) {
      told.push_back(fmt::format("{} is kept, as nothing is known of its training: {}", folder.string(), error.what()));
    }
  std::string others;
  for (const auto& [host, count] : of_hosts)
    others += fmt::format("{}{} of host {}", others.empty() ? "" : ", ", count, printable(host, 100));
  if (!others.empty())
    told.push_back(
        fmt::format("{}: folders of local copies of other hosts are kept, as only a run there can tell whether they are "
                    "in use: {}",
                    disk.string(), others));
  return told;
}

}  // namespace mpigrad
