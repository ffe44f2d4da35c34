#ifndef MPIGRAD_COMM_TRANSPORT_WAITED_H
#define MPIGRAD_COMM_TRANSPORT_WAITED_H
// The time that this rank's thread has waited for other ranks since it started. Costs two readings of a clock per call, always.

#include <chrono>

namespace mpigrad::detail {

// Seconds.
struct Waited {
  double collectives = 0, messages = 0;
};

// The times of the calling thread since it started; each WaitTimer adds its own.
Waited& waited_of_this_thread();

// Adds the time of its scope; a nested timer adds nothing.
class WaitTimer {
 public:
  explicit WaitTimer(double Waited::*kind) {
    auto& depth = depth_of_this_thread();
    if (depth++ == 0) kind_ = kind, start_ = std::chrono::steady_clock::now();
  }
  ~WaitTimer() {
    --depth_of_this_thread();
    if (kind_) waited_of_this_thread().*kind_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;

 private:
  static int& depth_of_this_thread();

  double Waited::*kind_ = nullptr;
  std::chrono::steady_clock::time_point start_{};
};

}  // namespace mpigrad::detail

#endif
