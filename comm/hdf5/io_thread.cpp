#include "comm/hdf5/io_thread.h"

namespace mpigrad {

IoThread& IoThread::instance() {
  static IoThread thread;
  return thread;
}

// The library, opened first, is closed last: after the jobs that still wait when the process ends.
IoThread::IoThread() {
  hdf5::open_library();
  thread_ = std::thread([this] { work(); });
}

IoThread::~IoThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void IoThread::enqueue(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    // A job that submits another would wait for itself; after the end (objects of static lifetime) there is no one to wait for.
    if (std::this_thread::get_id() != thread_.get_id() && !stopping_) {
      jobs_.push_back(std::move(job));
      wake_.notify_one();
      return;
    }
  }
  job();
}

void IoThread::work() {
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
