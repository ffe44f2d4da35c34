#pragma once
// Answers that were measured on a GPU, kept in a file of lines, so that a later run need not measure. Several processes may add
// to one file at the same time; a damaged line is measured again. A file that other users may change, directly or through its
// folder, is neither read nor written; a warning says so once (framework/base/own_files.h). A file owned by root is only read,
// such as a file measured by the site.

#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace mpigrad::cuda {

class TuningFile {
 public:
  // Without a path the answers are kept only in this object.
  // `in_cache`: this program has made the file and its folder; if an umask of 002 has let the group write to them, the group
  // loses that right. Any other folder may be shared on purpose.
  explicit TuningFile(std::string path, bool in_cache = false) : path_(std::move(path)), in_cache_(in_cache) {}

  const std::string& path() const { return path_; }
  std::optional<std::string> find(const std::string& key);
  // Does nothing if the key has an answer already. Neither may contain tabs or ends of lines. If the file cannot be written, a
  // warning says so once, and this object keeps the answer.
  void add(const std::string& key, const std::string& answer);

 private:
  void read(int file);
  void close_cache() const;

  std::string path_;
  bool in_cache_;
  std::mutex mutex_;
  bool is_read_ = false;
  std::map<std::string, std::string> known_;
};

// The tuning file of the process: MPIGRAD_TUNING_FILE, or mpigrad/tuning.txt in the user's cache folder (XDG_CACHE_HOME, else
// ~/.cache); MPIGRAD_TUNING_FILE=none keeps nothing beyond the process.
TuningFile& tuning_file();

}  // namespace mpigrad::cuda
