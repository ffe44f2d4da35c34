#pragma once
// Checkpoints in two phases: a staged one has been copied, and training continues; a durable one is a complete file on the disk,
// under its final name.

#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "models/train/checkpoint/checkpoint.h"

namespace mpigrad {

class JobQueue;
namespace checkpoint_file {
struct Contents;
struct Remarks;
}  // namespace checkpoint_file

// Saves the checkpoints of one training, one at a time. Rank 0 and every rank that has blocks of tensors keep copies and write
// them on a separate thread.
class CheckpointSaver {
 public:
  explicit CheckpointSaver(const Communicator& world);
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;
  ~CheckpointSaver();  // waits until the staged checkpoint is durable or has failed

  // Allocates and touches the memory for copies of these tensors, so that the first stage() need not. Collective.
  void reserve(nn::Module& net, const SaveOptions& options);
  // Copies with all threads and returns; then rank 0 calls `before`, writes and calls `after` on the thread; their errors count
  // as errors of the file. Returns false and does nothing while the previous checkpoint is not durable. Collective. Errors: ranks
  // whose parameters have drifted apart; the failure of the previous checkpoint.
  bool stage(const std::filesystem::path& path, nn::Module& net, const SaveOptions& options, std::function<void()> before = {},
             std::function<void()> after = {});
  // The same, but each rank writes its part to a separate file and calls `after`, then `settled` if this succeeded on all ranks.
  bool stage_part(const std::filesystem::path& path, nn::Module& net, const SaveOptions& options, std::function<void()> after,
                  std::function<void()> settled);
  // Waits until the staged checkpoint is durable. Collective. Error: it failed.
  void finish();

  // The number of durable checkpoints; on rank 0.
  std::int64_t durable() const { return durable_; }

 private:
  using Writing = std::function<void(checkpoint_file::Contents&, checkpoint_file::Remarks&, const std::shared_ptr<Transport>&)>;

  bool stage(const std::filesystem::path& path, nn::Module& net, const SaveOptions& options, const Writing& write);
  void make_room(const checkpoint_file::Contents& contents);
  std::string outcome();  // error of the write that has just ended; "" for none

  const Communicator& world_;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> copies_;  // of all tensors, contiguous
  std::int64_t bytes_ = 0;                   // of copies_
  std::shared_ptr<Transport> transport_;     // for the threads that write blocks
  std::int64_t durable_ = 0;
  std::future<void> written_;
  std::unique_ptr<JobQueue> thread_;  // destroyed first
};

}  // namespace mpigrad
