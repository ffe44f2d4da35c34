#pragma once
// Checkpoints on the local disks of nodes, which are faster than the shared file system. If every rank has all weights, the node
// of rank 0 has one copy and the node of a partner another; if weights are split or stored in parts, each rank writes its part,
// and the node of its partner keeps a second copy. So any one node may fail. A resumed training reads the copies from any node
// that has them, on any grid and any number of ranks. They lie in a LocalFolder, readable by their user only, and each one has
// the name of the training as a note: copies of other users and trainings are not used.

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
  bool parts = false;  // each rank has a file with its part; else only rank 0, with everything
  // For each rank, or for rank 0 only: the rank that keeps its second copy; empty: a rank of another node, or none (-1) if there
  // is only one node.
  std::vector<int> partners{};
};

class LocalCopies {
 public:
  // Creates `folder`, which is on a disk of this rank's node. Collective. Errors, on all ranks: the folder cannot be created; an
  // error of LocalFolder; MPI without support for calls from several threads.
  LocalCopies(const Communicator& world, std::filesystem::path folder, const TrainingName& training,
              LocalCopiesOptions options = {});
  ~LocalCopies();
  LocalCopies(const LocalCopies&) = delete;
  LocalCopies& operator=(const LocalCopies&) = delete;

  bool parts() const { return parts_; }
  // The file that rank 0 writes, or that this rank writes with its part; its name contains the step.
  std::filesystem::path file(std::int64_t step) const;
  // Sends the file to the partner, which writes it to its disk. Called by the rank that wrote the file, on any thread, one call
  // at a time. Error: the failure of the partner.
  void replicate(std::int64_t step);
  // Removes the files of other steps on this rank's node; to be called on every rank when all parts of this step have been
  // replicated.
  void remove_others(std::int64_t step) const;
  int partner() const { return partners_[static_cast<std::size_t>(rank_)]; }  // -1: none

 private:
  std::filesystem::path file_of(int rank, std::int64_t step) const;
  void send(int to, int tag, void* data, std::int64_t bytes);
  void receive(int from);
  bool took(int from, int tag, void* data, std::int64_t bytes);  // false: the transfer was stopped

  std::filesystem::path folder_;
  std::optional<LocalFolder> used_;  // on ranks that write there
  std::shared_ptr<Transport> transport_;
  std::mutex calls_;  // calls of transport_: one thread at a time
  bool parts_;
  int rank_;
  std::vector<int> partners_;  // of each rank
  int exceptions_ = std::uncaught_exceptions();
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;  // one for each rank whose copy this one keeps
};

// Finds the newest complete copy that the nodes have in `folder`, if it is newer than `step`, joins it if it is in parts, and
// copies it to every node. Collective. Empty `file`: there is none. Files of another user, or with the note of another training,
// are skipped with a warning. Error: those of LocalFolder.
struct LocalCopy {
  std::filesystem::path file{};
  int rank = -1;          // the rank that had it, or rank 0's part of it
  std::string lacking{};  // newer incomplete copies: which rank's part no node has
};
// `looks`: whether this rank searches the disk of its node; default: the first rank of each node does.
LocalCopy find_local_copy(const Communicator& world, const std::filesystem::path& folder, const TrainingName& training,
                          std::int64_t step, std::optional<bool> looks = {});
// Removes all copies, when they are no longer needed. Collective.
void remove_local_copies(const Communicator& world, const std::filesystem::path& folder);

}  // namespace mpigrad
