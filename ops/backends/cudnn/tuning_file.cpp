#include "ops/backends/cudnn/tuning_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>

#include "framework/base/error.h"
#include "framework/base/own_files.h"
#include "framework/base/warning.h"

namespace mpigrad::cuda {
namespace {

// Marks the end of a line that was written completely.
constexpr std::string_view mark = "\tok";

void warn(const std::string& what) {
  warn_once("tuning file",
            fmt::format("warning: {}: measurements of GPU kernels are not kept; MPIGRAD_TUNING_FILE names another file", what));
}

constexpr const char* who = "tuning";

// Opens the file for reading if it can be trusted: this user or root owns it and its folder. Empty if there is no file. Error:
// other users may change it.
Descriptor open_to_read(const std::filesystem::path& path) {
  std::error_code none;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, none))) return {};
  const auto folder = path.parent_path();
  require(!std::filesystem::is_symlink(folder, none), "[{}] {} is a link: it is not followed", who, folder.string());
  require_safe_place(folder, who);
  return open_trusted_file(path, who);
}

// Opens the file of this user for reading and writing, in a folder of this user or in a shared one with a sticky bit, such as
// /tmp. Creates both if they do not exist.
Descriptor open_to_add(const std::filesystem::path& path) {
  const auto folder = path.parent_path();
  struct stat about {};
  const bool shared = lstat(folder.c_str(), &about) == 0 && S_ISDIR(about.st_mode) && (about.st_mode & S_ISVTX) != 0;
  if (shared) require_safe_place(folder, who);
  else static_cast<void>(make_own_folder(folder, who));
  return make_own_file(path, who, O_RDWR | O_APPEND);
}

// In a folder that this program creates, in the user's cache folder.
std::string path_in_cache() {
  const char *caches = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (caches && *caches) return std::string(caches) + "/mpigrad/tuning.txt";
  if (home && *home) return std::string(home) + "/.cache/mpigrad/tuning.txt";
  return "";
}

}  // namespace

void TuningFile::close_cache() const {
  if (!in_cache_) return;
  const auto path = std::filesystem::absolute(path_);
  close_to_group(path.parent_path());
  close_to_group(path);
}

void TuningFile::read(int file) {
  is_read_ = true;
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t bytes = 0; (bytes = pread(file, part.data(), part.size(), static_cast<off_t>(text.size()))) > 0;)
    text.append(part.data(), static_cast<std::size_t>(bytes));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto tab = line.find('\t');
    if (!line.ends_with(mark) || tab == std::string::npos || tab + mark.size() >= line.size()) continue;
    known_.emplace(line.substr(0, tab), line.substr(tab + 1, line.size() - tab - 1 - mark.size()));
  }
}

std::optional<std::string> TuningFile::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (!is_read_ && !path_.empty()) try {
      is_read_ = true;
      close_cache();
      if (const auto file = open_to_read(std::filesystem::absolute(path_))) read(file.get());
    } catch (const Error& error) {
      warn(error.what());
    }
  const auto found = known_.find(key);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void TuningFile::add(const std::string& key, const std::string& answer) {
  const std::lock_guard lock(mutex_);
  if (path_.empty()) {
    known_.emplace(key, answer);
    return;
  }
  try {
    close_cache();
    const auto file = open_to_add(std::filesystem::absolute(path_));
    // If a thousand ranks measured the same problem, it is written once; on file systems without locks, several times.
    static_cast<void>(flock(file.get(), LOCK_EX));
    read(file.get());
    if (!known_.emplace(key, answer).second) return;
    // Starts a new line, also after a line that was cut off.
    const auto line = fmt::format("\n{}\t{}{}\n", key, answer, mark);
    require(write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()), "[tuning] {} cannot be written: {}",
            path_, std::strerror(errno));
  } catch (const Error& error) {
    known_.emplace(key, answer);
    warn(error.what());
  }
}

TuningFile& tuning_file() {
  const char* setting = std::getenv("MPIGRAD_TUNING_FILE");
  static auto* file =
      setting ? new TuningFile(std::string_view(setting) == "none" ? "" : setting) : new TuningFile(path_in_cache(), true);
  return *file;
}

}  // namespace mpigrad::cuda
