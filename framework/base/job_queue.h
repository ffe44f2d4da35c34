#pragma once
// Threads that run jobs, which start in the order of submission. Not installed.

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/base/error.h"

namespace mpigrad {

class JobQueue {
 public:
  // 0 threads: every job runs where it is submitted. Each thread tells OpenMP to use no others: a step's own threads keep the
  // cores.
  explicit JobQueue(int threads);
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;
  ~JobQueue();  // after all jobs

  // The future holds f's result or what it threw; destroying it does not wait. A job that submits another runs it at once,
  // because it might wait for it, and so does who submits after the end (objects of static lifetime).
  template <class F>
  auto submit(F f) -> std::future<std::invoke_result_t<F&>> {
    using Result = std::invoke_result_t<F&>;
    auto task = std::make_shared<std::packaged_task<Result()>>(std::move(f));
    auto future = task->get_future();
    enqueue([task] { (*task)(); });
    return future;
  }
  // Runs f there and waits.
  template <class F>
  auto run(F f) {
    try {
      return submit(std::move(f)).get();
    } catch (Error& error) {
      error.set_stack_here();
      throw;
    }
  }

 private:
  void enqueue(std::function<void()> job);
  void work();
  bool is_mine(std::thread::id id) const;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mpigrad
