#pragma once
// A queue of jobs, which its threads start in the order of submission. Not installed.

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
  // With 0 threads every job runs in submit(). Each thread makes OpenMP use one thread, to leave the cores to the threads of the
  // step.
  explicit JobQueue(int threads);
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;
  ~JobQueue();  // waits for all jobs

  // The future holds f's result or what it threw; destroying it does not wait. A job submitted by a job runs at once, because the
  // submitting job might wait for it; so does a job submitted after the end of the queue (by objects of static lifetime).
  template <class F>
  auto submit(F f) -> std::future<std::invoke_result_t<F&>> {
    using Result = std::invoke_result_t<F&>;
    auto task = std::make_shared<std::packaged_task<Result()>>(std::move(f));
    auto future = task->get_future();
    enqueue([task] { (*task)(); });
    return future;
  }
  // Runs f on a thread of the queue and waits.
  template <class F>
  auto run(F f) {
    try {
      return submit(std::move(f)).get();
    } catch (Error& error) {
      error.set_stack_here();
      throw;
    }
  }

  // Runs f on the calling thread while the queue, which has one thread, runs nothing else: for calls that only this thread may
  // make.
  template <class F>
  auto run_here(F f) {
    struct Turn {
      std::promise<void> begin, end;
      std::future<void> begun = begin.get_future(), ended = end.get_future(), held{};
      ~Turn() {
        end.set_value();
        if (held.valid()) held.wait();
      }
    };
    if (runs_at_once()) return f();
    Turn turn;
    turn.held = submit([&turn] {
      turn.begin.set_value();
      turn.ended.wait();
    });
    turn.begun.wait();
    return f();
  }

 private:
  void enqueue(std::function<void()> job);
  bool at_once() const;  // whether submit() runs a job of this thread itself; under the lock
  bool runs_at_once();
  void work();
  bool is_mine(std::thread::id id) const;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mpigrad
