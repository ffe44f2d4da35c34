#pragma once
// The one thread of a process that calls HDF5, which is not thread-safe (its parallel build never is). Jobs run one at a time in
// the order of submission.

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>

namespace mpigrad {

namespace hdf5 {
// HDF5's own start; nothing in builds without it.
void open_library();
}  // namespace hdf5

class IoThread {
 public:
  static IoThread& instance();
  ~IoThread();

  // The future holds f's result or what it threw; destroying it does not wait.
  template <class F>
  auto submit(F f) -> std::future<std::invoke_result_t<F&>> {
    using Result = std::invoke_result_t<F&>;
    auto task = std::make_shared<std::packaged_task<Result()>>(std::move(f));
    auto future = task->get_future();
    enqueue([task] { (*task)(); });
    return future;
  }
  // Runs f there and waits. On the I/O thread itself f runs at once.
  template <class F>
  auto run(F f) {
    return submit(std::move(f)).get();
  }

 private:
  IoThread();
  void enqueue(std::function<void()> job);
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace mpigrad
