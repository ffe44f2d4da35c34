#pragma once
// Checkpoints in two phases: a staged one has been copied, and training goes on; a durable one is a whole file on the disk, under
// its name, and may be relied on.

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

// One at a time; of one training. Rank 0, and every rank that has blocks of tensors, keeps copies of its own and writes them, on
// a thread of its own.
class CheckpointSaver {
 public:
  explicit CheckpointSaver(const Communicator& world);
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;
  ~CheckpointSaver();  // until what is staged is durable, or has failed

  // Takes the memory for copies of these tensors, touched, so that the first stage() need not. Collective.
  void reserve(nn::Module& net, const SaveOptions& options);
  // Copies with all threads and returns; then rank 0 calls `before`, writes and calls `after`, whose errors are those of the
  // file. False, and nothing happens, while the one before is not durable. Collective. Errors: ranks whose parameters have
  // drifted apart; what went wrong with the one before.
  bool stage(const std::filesystem::path& path, nn::Module& net, const SaveOptions& options, std::function<void()> before = {},
             std::function<void()> after = {});
  // The same with tensors in blocks, of which each rank writes its part into a file of its own, calls `after`, and `settled` when
  // that went well on all ranks.
  bool stage_part(const std::filesystem::path& path, nn::Module& net, const SaveOptions& options, std::function<void()> after,
                  std::function<void()> settled);
  // Waits until what is staged is durable. Collective. Error: what went wrong with it.
  void finish();

  // That have become durable; on rank 0.
  std::int64_t durable() const { return durable_; }

 private:
  using Writing = std::function<void(checkpoint_file::Contents&, checkpoint_file::Remarks&, const std::shared_ptr<Transport>&)>;

  bool stage(const std::filesystem::path& path, nn::Module& net, const SaveOptions& options, const Writing& write);
  void make_room(const checkpoint_file::Contents& contents);
  std::string outcome();  // of what was under way, and has ended: what went wrong

  const Communicator& world_;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> copies_;  // one behind the other
  std::int64_t bytes_ = 0;                   // of them
  std::shared_ptr<Transport> transport_;     // of the threads that write blocks
  std::int64_t durable_ = 0;
  std::future<void> written_;
  std::unique_ptr<JobQueue> thread_;  // ends first
};

}  // namespace mpigrad
