#pragma once
// Checkpoints on the nodes' own disks, which are quicker than the file system that all nodes share and need not be spared. Where
// every rank has all weights, rank 0's node has one and the node of a partner another; where they are split or stored in parts,
// each rank writes its part, and the node of its partner keeps that too. So any node may die. A training that goes on takes them
// from whatever node has them, on any grid and any number of ranks. They lie in a LocalFolder, readable by their user only, and
// each one has the training's name as a note: copies of other users and of other trainings are not taken.

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "models/train/restart/local_folder.h"

namespace mpigrad {

struct LocalCopiesOptions {
  bool parts = false;  // each rank has a file, of its part; else rank 0 alone, of all
  // Of each rank, or of rank 0 alone: who keeps its other copy; empty: a rank of another node, none (-1) where there is one node.
  std::vector<int> partners{};
};

class LocalCopies {
 public:
  // `folder` is on a disk of this rank's node. Makes it. Collective. Errors, on all ranks: a folder that cannot be made, or that
  // LocalFolder refuses; MPI that lets one thread call at a time.
  LocalCopies(const Communicator& world, std::filesystem::path folder, const TrainingName& training,
              LocalCopiesOptions options = {});
  ~LocalCopies();
  LocalCopies(const LocalCopies&) = delete;
  LocalCopies& operator=(const LocalCopies&) = delete;

  bool parts() const { return parts_; }
  // The file that rank 0 writes, or this rank of its part, whose name has the step.
  std::filesystem::path file(std::int64_t step) const;
  // Sends it to the partner, who then has it, too, on the disk. Of the rank that wrote it, on any thread, one at a time. Error:
  // what went wrong there.
  void replicate(std::int64_t step);
  // When all ranks' parts of this step have been replicated: removes what this rank's node has of others. On every rank.
  void remove_others(std::int64_t step) const;
  int partner() const { return partners_[static_cast<std::size_t>(rank_)]; }  // -1: none

 private:
  std::filesystem::path file_of(int rank, std::int64_t step) const;
  void send(int to, int tag, void* data, std::int64_t bytes);
  void receive(int from);
  bool took(int from, int tag, void* data, std::int64_t bytes);  // false: nobody waits for it any more

  std::filesystem::path folder_;
  std::optional<LocalFolder> used_;  // of a rank that writes there
  std::shared_ptr<Transport> transport_;
  std::mutex calls_;  // of it: one thread at a time
  bool parts_;
  int rank_;
  std::vector<int> partners_;  // of each rank
  int exceptions_ = std::uncaught_exceptions();
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;  // one for each rank whose copy this one keeps
};

// The newest whole copy that the nodes have in `folder`, if it is newer than `step`; then every node has it there, put together
// where it was in parts. Collective. Empty file: there is none. A file that is another user's, or has another training's note, is
// skipped with a warning. Error: a folder that LocalFolder refuses.
struct LocalCopy {
  std::filesystem::path file{};
  int rank = -1;          // that had it, or rank 0's part of it
  std::string lacking{};  // what is newer and not whole: which rank's part no node has
};
// `looks`: whether this rank does so for its node; if not said, the first of each node does.
LocalCopy find_local_copy(const Communicator& world, const std::filesystem::path& folder, const TrainingName& training,
                          std::int64_t step, std::optional<bool> looks = {});
// Where nobody needs them any more. Collective.
void remove_local_copies(const Communicator& world, const std::filesystem::path& folder);

}  // namespace mpigrad
