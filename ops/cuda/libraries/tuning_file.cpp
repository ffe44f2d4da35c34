#include "ops/cuda/libraries/tuning_file.h"

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

#include "framework/error.h"
#include "framework/own_files.h"
#include "framework/warning.h"

namespace mpigrad::cuda {
namespace {

// The end of a line that was written as a whole.
constexpr std::string_view mark = "\tok";

void warn(const std::string& what) {
  warn_once(
      "tuning file",
      fmt::format("warning: {}: what is measured of GPU kernels is not kept; MPIGRAD_TUNING_FILE names another file", what));
}

// Opens the file if it may be believed, in a folder that is this user's, or shared and with a sticky bit as /tmp. `makes` makes
// both where they are not there; without that an empty descriptor stands for a missing file. Error: anything else.
Descriptor open_tuning(const std::string& path, bool makes) {
  const auto folder = std::filesystem::absolute(path).parent_path();
  std::error_code none;
  if (!makes && !std::filesystem::exists(std::filesystem::symlink_status(path, none))) return {};
  struct stat about {};
  const bool shared = lstat(folder.c_str(), &about) == 0 && S_ISDIR(about.st_mode) && (about.st_mode & S_ISVTX) != 0;
  if (!shared) static_cast<void>(makes ? make_own_folder(folder, "tuning") : open_own_folder(folder, "tuning"));
  return (makes ? make_own_file : open_own_file)(path, "tuning", O_RDWR | O_APPEND);
}

std::string default_path() {
  if (const char* setting = std::getenv("MPIGRAD_TUNING_FILE")) return std::string_view(setting) == "none" ? "" : setting;
  const char *caches = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (caches && *caches) return std::string(caches) + "/mpigrad/tuning.txt";
  if (home && *home) return std::string(home) + "/.cache/mpigrad/tuning.txt";
  return "";
}

}  // namespace

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
      if (const auto file = open_tuning(path_, false)) read(file.get());
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
    const auto file = open_tuning(path_, true);
    // A thousand ranks that measured the same thing write it once. Where there are no locks they write it more often.
    static_cast<void>(flock(file.get(), LOCK_EX));
    read(file.get());
    if (!known_.emplace(key, answer).second) return;
    // A line of its own also behind one that was cut off.
    const auto line = fmt::format("\n{}\t{}{}\n", key, answer, mark);
    require(write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()), "[tuning] {} cannot be written: {}",
            path_, std::strerror(errno));
  } catch (const Error& error) {
    known_.emplace(key, answer);
    warn(error.what());
  }
}

TuningFile& tuning_file() {
  static auto* file = new TuningFile(default_path());
  return *file;
}

}  // namespace mpigrad::cuda
