#pragma once
// Threads that decode and prepare samples while a step computes.

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace mpigrad::data {

// Jobs start in the order of submission. Each thread tells OpenMP to use no others: the step's own threads keep the cores.
class Workers {
 public:
  // 0 threads: every job runs where it is submitted.
  explicit Workers(int threads);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();  // after all jobs

  // The future holds f's result or what it threw; destroying it does not wait.
  template <class F>
  auto submit(F f) -> std::future<std::invoke_result_t<F&>> {
    using Result = std::invoke_result_t<F&>;
    auto task = std::make_shared<std::packaged_task<Result()>>(std::move(f));
    auto future = task->get_future();
    enqueue([task] { (*task)(); });
    return future;
  }

 private:
  void enqueue(std::function<void()> job);
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mpigrad::data
