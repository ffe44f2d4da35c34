#include "models/data/data_workers.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#include "framework/error.h"

namespace mpigrad::data {

Workers::Workers(int threads) {
  require(threads >= 0 && threads <= 1024, "[data] {} threads", threads);
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Workers::enqueue(std::function<void()> job) {
  if (threads_.empty()) return job();
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void Workers::work() {
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

}  // namespace mpigrad::data
