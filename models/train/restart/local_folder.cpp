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
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>

#include "framework/error.h"

namespace mpigrad {

namespace fs = std::filesystem;

namespace {

constexpr const char *mark_name = ".training", *folder_prefix = "mpigrad-", *who = "local copies";

// The lines of ".training".
struct Mark {
  std::string training, host, file;
  std::string place;  // number of the folder above the folder of results: a file system that is not mounted has another one
};

std::string this_host() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string place_of_results(const fs::path& file) {
  struct stat about {};
  return stat(file.parent_path().parent_path().c_str(), &about) == 0 ? fmt::format("{}", about.st_ino) : "unknown";
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

// Whole from the first moment on, and never replaced: locks are of the file, not of its name.
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

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(fs::symlink_status(path, none));
}

void require_training(const Descriptor& file, const fs::path& folder, const TrainingName& training) {
  const auto mark = read_mark(file);
  require(mark && mark->training == training.name, "[{}] {} is not of this training, {}, but of {}", who, folder.string(),
          training.name, mark ? mark->training : "none");
}

// False: another process has it. Where there are no locks, `unknown`.
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
    require(fchmod(opened.get(), 0700) == 0, "[{}] {} cannot be closed to other users: {}", who, folder.string(),
            std::strerror(errno));
    const auto path = folder / mark_name;
    if (!is_there(path)) write_mark(folder, training);
    mark_ = open_own_file(path, who, O_RDWR);
    // Another training of this user may be removing it as left over.
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
  // The folder of results may have been moved. All ranks of the node write the same.
  const auto text = mark_text(training);
  require(pwrite(mark_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
              ftruncate(mark_.get(), static_cast<off_t>(text.size())) == 0,
          "[{}] {} cannot be written: {}", who, (folder / mark_name).string(), std::strerror(errno));
}

void require_local_folder(const fs::path& folder, const TrainingName& training) {
  require_safe_place(folder.parent_path(), who);
  if (!is_there(folder)) return;
  const auto opened = open_own_folder(folder, who);
  if (const auto path = folder / mark_name; is_there(path))
    require_training(open_own_file(path, who, O_RDONLY), folder, training);
}

void remove_local_folder(const fs::path& folder) {
  std::error_code none;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (!entry.is_directory(none) || entry.is_symlink(none)) files.push_back(entry.path());
  for (const auto& file : files) fs::remove(file, none);
  fs::remove(folder, none);
}

namespace {

// Empty: none can be read.
std::string name_in(const fs::path& file) {
  std::ifstream stream(file);
  std::string name;
  stream >> name;
  return name;
}

// Why nothing will go on with the copies of a training; empty: it may be resumed.
std::string end_of(const Mark& mark, const std::function<bool(const fs::path& results)>& finished) {
  const fs::path file = mark.file, results = file.parent_path();
  const auto status = [](const fs::path& path) {
    std::error_code none;
    return fs::status(path, none).type();
  };
  const auto name = name_in(file);
  if (name == mark.training) return finished(results) ? "which has finished" : "";
  if (!name.empty()) return "in whose place there is another training";
  if (status(file) != fs::file_type::not_found) return {};
  if (status(results) == fs::file_type::directory) return "which is no longer there";
  if (status(results) != fs::file_type::not_found || place_of_results(file) != mark.place) return {};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(results.parent_path(), error))  // renamed
    if (name_in(entry.path() / file.filename()) == mark.training) return {};
  return error ? "" : "which is no longer there";
}

}  // namespace

std::vector<std::string> clear_local_folders(const fs::path& disk, const std::string& own,
                                             const std::function<bool(const fs::path& results)>& finished) {
  std::vector<std::string> told;
  std::vector<fs::path> folders;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(disk, none)) {
    struct stat about {};
    if (entry.path().filename().string().starts_with(folder_prefix) && entry.path() != local_folder(disk, own) &&
        lstat(entry.path().c_str(), &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == geteuid())
      folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  for (const auto& folder : folders) try {
      const auto opened = open_own_folder(folder, who);
      const auto file = open_own_file(folder / mark_name, who, O_RDWR);
      const auto mark = read_mark(file);
      require(mark.has_value(), "[{}] {} names no training", who, (folder / mark_name).string());
      if (mark->host != this_host() || !locked(file, LOCK_EX, false)) continue;
      const auto of =
          fmt::format("{}: local copies of the training in {}", folder.string(), fs::path(mark->file).parent_path().string());
      if (const auto why = end_of(*mark, finished); !why.empty()) {
        remove_local_folder(folder);
        told.push_back(fmt::format("{}, {}: {}", of, why, is_there(folder) ? "not all of them could be removed" : "removed"));
      } else {
        told.push_back(fmt::format("{} are kept: --resume can go on from them", of));
      }
    } catch (const Error& error) {
      told.push_back(fmt::format("{} is kept, as no training of it is known: {}", folder.string(), error.what()));
    }
  return told;
}

}  // namespace mpigrad
