#pragma once
// The folder of a run: output files, which one run at a time writes.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "models/trainer/folder/folder_lock.h"

namespace mpigrad::trainer {

// A file that a run writes, and the bytes that must be free for it (0: not known).
struct OutputFile {
  std::string name;
  std::int64_t bytes = 0;
};

// Output files of a run, in one folder.
class Outputs {
 public:
  // Throws UsageError if any of the files exists and `overwrite` is false; rank 0 looks.
  Outputs(const Communicator& world, const std::filesystem::path& folder, const std::vector<std::string>& files, bool overwrite);
  // Locks the folder if it exists (FolderLock), so that no other run changes what this one reads in it. Collective. `patience`:
  // seconds in which the previous run may end.
  void lock(const Communicator& world, double patience = 0) const;
  // Makes the folder, locks it, and opens all files and `more` for writing, so that a file that cannot be written is an error now
  // and not after hours; call it once all options are known to be right. UsageError: a folder has a file's name. Collective.
  void create(const Communicator& world, const std::vector<OutputFile>& more = {}) const;

  // At the end of a training: opens the files for writing again. If they cannot be written any more, or the folder was removed or
  // taken by another run, it is replaced by a folder with a new name in the working directory, the home directory or that of
  // temporary files; rank 0 prints that, and settle() returns false. Error: none of these can be written either. Collective.
  bool settle(const Communicator& world) const;
  // settle(), then write(PATH); if that fails in the folder, once more in the replacement. Collective.
  void keep(const Communicator& world, const std::string& file,
            const std::function<void(const std::filesystem::path& path)>& write) const;
  bool moved() const { return state_->moved; }
  // When the run began; limits of its time count from here.
  std::chrono::steady_clock::time_point started() const { return state_->started; }

  // Writes the file `state` of a training (state.h), on rank 0, after create(). A failure is only a warning if the run ended
  // well, and ignored otherwise, because the reason for the end matters more.
  void note(const char* word, const std::string& why = {}) const;

  // Those of `files` that exist.
  std::vector<std::string> written(std::vector<std::string> files) const;
  std::string folder() const { return state_->folder.string(); }
  std::filesystem::path operator/(const std::string& file) const { return state_->folder / file; }

 private:
  struct State {
    std::filesystem::path folder;
    std::vector<OutputFile> files{};
    bool overwrite = false, moved = false;
    std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
    std::unique_ptr<tool::FolderLock> lock{};  // on rank 0
  };
  void require_new() const;
  void move(const Communicator& world, const std::string& why) const;
  std::shared_ptr<State> state_;  // shared by copies
};

}  // namespace mpigrad::trainer
