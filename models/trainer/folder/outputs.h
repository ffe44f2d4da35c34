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

// A file that a run writes, and for how many bytes there is to be room (0: not known).
struct OutputFile {
  std::string name;
  std::int64_t bytes = 0;
};

// Output files of a run, in one folder.
class Outputs {
 public:
  // Rank 0 looks whether any of the files exists already.
  Outputs(const Communicator& world, const std::filesystem::path& folder, const std::vector<std::string>& files, bool overwrite);
  // Locks the folder if it is there (FolderLock), so that no other run changes what this one reads in it. Collective. `patience`:
  // seconds in which the run before may end.
  void lock(const Communicator& world, double patience = 0) const;
  // Makes the folder, when everything else is known to be right, locks it, and tries all files and `more` of them: a file that
  // cannot be written is an error now and not after hours. UsageError: a folder has a file's name. Collective.
  void create(const Communicator& world, const std::vector<OutputFile>& more = {}) const;

  // At the end of a training. Tries the files again. Where they cannot be written any more, or the folder was removed or given to
  // another run, a folder with a new name in the working directory, the home directory or that of temporary files takes its
  // place; rank 0 says so. False: it has. Error: none of these can be written either. Collective.
  bool settle(const Communicator& world) const;
  // settle(), then write(PATH): if that fails in the folder, once more at the second place. Collective.
  void keep(const Communicator& world, const std::string& file,
            const std::function<void(const std::filesystem::path& path)>& write) const;
  bool moved() const { return state_->moved; }
  // When the run began: limits of its time count from here.
  std::chrono::steady_clock::time_point started() const { return state_->started; }

  // Writes the file `state` of a training (state.h), on rank 0, after create(). A failure is no error: it is a warning where the
  // run ended well, and else nothing, as the reason for the end matters more.
  void note(const char* word, const std::string& why = {}) const;

  // Those of the files that are there.
  std::vector<std::string> written(std::vector<std::string> files) const;
  std::string folder() const { return state_->folder.string(); }
  std::filesystem::path operator/(const std::string& file) const { return state_->folder / file; }

 private:
  struct State {
    std::filesystem::path folder;
    std::vector<OutputFile> files{};
    bool overwrite = false, moved = false;
    std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
    std::unique_ptr<tool::FolderLock> lock{};  // of rank 0
  };
  void require_new() const;
  void move(const Communicator& world, const std::string& why) const;
  std::shared_ptr<State> state_;  // copies are of the same folder
};

}  // namespace mpigrad::trainer
