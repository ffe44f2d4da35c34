#include "framework/base/job_queue.h"

#include <algorithm>
#include <system_error>

#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#endif

#include "framework/base/error.h"

namespace mpigrad {

JobQueue::JobQueue(int threads) {
  require(threads >= 0 && threads <= 1024, "[jobs] {} threads", threads);
  const std::lock_guard lock(mutex_);  // threads wait in is_mine() until the list is complete
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    // Continue with fewer threads, but not with none: jobs that rely on running one after the other on one thread share data
    // without a lock.
    if (threads_.empty()) throw;
  }
}

JobQueue::~JobQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

bool JobQueue::is_mine(std::thread::id id) const {
  return std::any_of(threads_.begin(), threads_.end(), [id](const std::thread& thread) { return thread.get_id() == id; });
}

void JobQueue::enqueue(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (!at_once()) {
      jobs_.push_back(std::move(job));
      wake_.notify_one();
      return;
    }
  }
  job();
}

bool JobQueue::at_once() const { return threads_.empty() || stopping_ || is_mine(std::this_thread::get_id()); }

bool JobQueue::runs_at_once() {
  const std::lock_guard lock(mutex_);
  return at_once();
}

namespace {

// Gives this thread the batch scheduling policy. With the default policy a woken thread may take the processor from the
// submitting thread for a whole job, say a millisecond of reading that is not needed yet. A batch thread gets the same share of
// the processors, but does not preempt. If the system refuses, jobs run with the default policy.
void work_as_batch() {
#ifdef __linux__
  const sched_param none{};
  static_cast<void>(pthread_setschedparam(pthread_self(), SCHED_BATCH, &none));
#endif
}

}  // namespace

void JobQueue::work() {
  work_as_batch();
#ifdef _OPENMP
  omp_set_num_threads(1);
#endif
  for (;;) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
  }
}

}  // namespace mpigrad
