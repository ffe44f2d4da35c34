#pragma once
// Checkpoints on the nodes' own disks, which are quicker than the file system that all nodes share and need not be spared: rank
// 0's node has one, and the node of a partner has another, so that either may die. A training that goes on takes it from whatever
// node has the newest one, on any grid and any number of ranks.

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "comm/communicator.h"

namespace mpigrad {

class LocalCopies {
 public:
  // `folder` is on a disk of this rank's node. `partner`: the rank that keeps the other copy, in its folder; -1: the first one of
  // another node, none where there is one node. Makes the folder. Collective. Errors, on all ranks: a folder that cannot be made;
  // MPI that lets one thread call at a time.
  LocalCopies(const Communicator& world, std::filesystem::path folder, int partner = -1);
  ~LocalCopies();
  LocalCopies(const LocalCopies&) = delete;
  LocalCopies& operator=(const LocalCopies&) = delete;

  // The file that rank 0 writes.
  std::filesystem::path file() const;
  // Sends it to the partner, who then has it, too, on the disk. Of rank 0, on any thread, one at a time. Error: what went wrong
  // there.
  void replicate();
  int partner() const { return partner_; }  // -1: none

 private:
  void receive();
  bool took(int tag, void* data, std::int64_t bytes);  // from rank 0; false: nobody waits for it any more

  std::filesystem::path folder_;
  std::shared_ptr<Transport> transport_;
  int rank_, partner_;
  int exceptions_ = std::uncaught_exceptions();
  std::atomic<bool> stop_ = false;
  std::thread thread_;  // of the partner
};

// The folder for the copies of one training, which has a name of its own: those of others, on disks that are met again, are not
// its.
std::filesystem::path local_folder(const std::filesystem::path& disk, const std::string& training);

// The newest whole copy that any node has in `folder`, if it is newer than `step`; then every node has it there. Collective.
// Empty file: there is none.
struct LocalCopy {
  std::filesystem::path file{};
  int rank = -1;  // that had it
};
// `looks`: whether this rank does so for its node; if not said, the first of each node does.
LocalCopy find_local_copy(const Communicator& world, const std::filesystem::path& folder, std::int64_t step,
                          std::optional<bool> looks = {});
// Where nobody needs them any more. Collective.
void remove_local_copies(const Communicator& world, const std::filesystem::path& folder);

}  // namespace mpigrad
