#include "ops/cuda/libraries/tuning_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "framework/warning.h"

namespace mpigrad::cuda {
namespace {

// The end of a line that was written as a whole.
constexpr std::string_view mark = "\tok";

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : descriptor_(open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644)) {}
  ~OpenFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

std::string default_path() {
  if (const char* setting = std::getenv("MPIGRAD_TUNING_FILE")) return std::string_view(setting) == "none" ? "" : setting;
  const char *caches = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (caches && *caches) return std::string(caches) + "/mpigrad/tuning.txt";
  if (home && *home) return std::string(home) + "/.cache/mpigrad/tuning.txt";
  return "";
}

}  // namespace

void TuningFile::read() {
  is_read_ = true;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    const auto tab = line.find('\t');
    if (!line.ends_with(mark) || tab == std::string::npos || tab + mark.size() >= line.size()) continue;
    known_.emplace(line.substr(0, tab), line.substr(tab + 1, line.size() - tab - 1 - mark.size()));
  }
}

std::optional<std::string> TuningFile::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (!is_read_ && !path_.empty()) read();
  const auto found = known_.find(key);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void TuningFile::add(const std::string& key, const std::string& answer) {
  const std::lock_guard lock(mutex_);
  if (path_.empty()) {
    known_.emplace(key, answer);
    return;
  }
  std::error_code none;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), none);
  const OpenFile file(path_);
  // A thousand ranks that measured the same thing write it once. Where there are no locks they write it more often.
  if (file.get() >= 0) static_cast<void>(flock(file.get(), LOCK_EX));
  read();
  if (!known_.emplace(key, answer).second) return;
  // A line of its own also behind one that was cut off.
  const auto line = fmt::format("\n{}\t{}{}\n", key, answer, mark);
  if (file.get() < 0 || write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    warn_once(
        "tuning file",
        fmt::format("warning: what was measured of GPU kernels cannot be kept in {} ({}): MPIGRAD_TUNING_FILE names another file",
                    path_, std::strerror(errno)));
}

TuningFile& tuning_file() {
  static auto* file = new TuningFile(default_path());
  return *file;
}

}  // namespace mpigrad::cuda
