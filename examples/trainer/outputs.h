#pragma once
// The folder of a run: output files, which one run at a time writes.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "examples/tool/folder_lock.h"

namespace mpigrad::trainer {

// Output files of a run, in one folder.
class Outputs {
 public:
  // Rank 0 looks whether any of the files exists already.
  Outputs(const Communicator& world, const std::filesystem::path& folder, const std::vector<std::string>& files, bool overwrite);
  // Locks the folder if it is there (FolderLock), so that no other run changes what this one reads in it. Collective. `patience`:
  // seconds in which the run before may end.
  void lock(const Communicator& world, double patience = 0) const;
  // Makes the folder, when everything else is known to be right, locks it, and finds out whether files can be made in it.
  // Collective.
  void create(const Communicator& world) const;
  // Those of the files that are there.
  std::vector<std::string> written(std::vector<std::string> files) const;
  std::filesystem::path operator/(const std::string& file) const { return state_->folder / file; }

 private:
  struct State {
    std::filesystem::path folder;
    std::vector<std::string> files;
    bool overwrite = false;
    std::unique_ptr<tool::FolderLock> lock{};  // of rank 0
  };
  void require_new() const;
  std::shared_ptr<State> state_;  // copies are of the same folder
};

}  // namespace mpigrad::trainer
