#pragma once
// The activity of a rank, for its watchdog and for errors: the last call, and since when it waits. Created on the rank's own
// thread. Used inside comm only.

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport/transport.h"
#include "framework/engine/activity.h"

namespace mpigrad::detail {

// The properties of a collective call on which all ranks must agree. Compared and sent bytewise, so every byte is set.
struct Signature {
  std::array<char, 32> call{};
  std::int64_t number = 0;   // of the call on its communicator
  std::int64_t count = 0;    // elements; the total, where there is one count per rank
  std::uint64_t counts = 0;  // hash of one count per rank
  std::int32_t type = -1, reduction = -1, root = -1;
  std::int32_t recorded = 0;  // 1 on a tape: the call's adjoint will communicate, too

  Signature() = default;
  Signature(std::string_view name, std::int64_t n) : number(n) { name.copy(call.data(), call.size() - 1); }
  bool operator==(const Signature&) const = default;
};

// "allreduce of 4 float32, sum"
std::string to_string(const Signature& signature);
// "0-3,5"
std::string ranges(const std::vector<int>& ranks);

class CallBoard {
 public:
  struct State {
    Signature call;
    std::int64_t milliseconds = 0;  // in this call, or since it ended
    std::int32_t waiting = 0;       // 1 inside the call
    std::int32_t ranks = 0;         // of the call's communicator
    std::int32_t counts = 0;        // 1 in training, outside phases of unlimited duration
    std::int32_t gpu = 0;           // 1: the host waits for its GPU, after the call
    std::int32_t ended = 0;         // 1: the rank has reached the end of the program, `milliseconds` ago
    std::int32_t leaves = 0;        // 1: SIGTERM has asked this rank to end, and it waits for others, not for a checkpoint
  };
  // If a call consists of other calls, as those of GPUs consist of the host's, only the outermost one counts.
  void begin(const Signature& call, int ranks);
  void end();
  void end_program();
  State state() const;

 private:
  mutable std::mutex mutex_;
  State state_;
  int depth_ = 0;  // calls that have begun and not ended
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::shared_ptr<const Activity> activity_ = activity_of_this_thread();
};

// The board of the rank that runs on this thread; may be null. Transports made on the thread keep a reference.
std::shared_ptr<CallBoard>& board_of_this_thread();

}  // namespace mpigrad::detail
