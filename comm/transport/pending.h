#ifndef MPIGRAD_COMM_TRANSPORT_PENDING_H
#define MPIGRAD_COMM_TRANSPORT_PENDING_H
// Operations under way.

#include <exception>
#include <memory>
#include <utility>

#include "comm/transport/waited.h"

namespace mpigrad {

constexpr int proc_null = -1;   // no peer: nothing is sent, nothing arrives
constexpr int any_source = -2;  // of receives that take messages from any rank
constexpr int any_tag = -1;

// Where a message came from.
struct Status {
  int source = proc_null;
  int tag = any_tag;
};

// The implementation of an operation under way by a transport. Each function but test() is called at most once, and only one of
// wait() and drop().
class PendingWork {
 public:
  virtual ~PendingWork() = default;
  virtual void wait() = 0;
  virtual bool test() = 0;
  // The peers may never answer, and wait() is not called: memory that others may still read must stay valid.
  virtual void drop() noexcept {}
  virtual Status status() const { return {}; }  // of a receive, after wait()
};

// An operation under way. Buffers must live until wait() returns. One that is destroyed waits first, except while an exception
// unwinds the stack: the peers may never answer then, and the buffers hold nothing useful.
class Pending {
 public:
  Pending() = default;  // nothing is under way
  explicit Pending(std::unique_ptr<PendingWork> work) : work_(std::move(work)), open_(work_ != nullptr) {}
  Pending(Pending&& other) noexcept
      : work_(std::move(other.work_)), open_(std::exchange(other.open_, false)), kind_(other.kind_),
        exceptions_(other.exceptions_) {}
  Pending& operator=(Pending&& other) noexcept {
    if (this == &other) return *this;
    end();
    work_ = std::move(other.work_), open_ = std::exchange(other.open_, false), kind_ = other.kind_,
    exceptions_ = other.exceptions_;
    return *this;
  }
  ~Pending() { end(); }

  // Whether there is, or was, something under way.
  explicit operator bool() const { return work_ != nullptr; }
  // A second call returns at once; only the first call throws the error.
  void wait() {
    if (!std::exchange(open_, false)) return;
    const detail::WaitTimer timer(kind_);
    work_->wait();
  }
  // True if wait() would return, or throw, at once.
  bool test() { return !open_ || work_->test(); }
  // Abandons the operation, because the peers may never answer, as its destruction by an exception would.
  void cancel() noexcept {
    if (std::exchange(open_, false)) work_->drop();
  }
  Status status() const { return work_ ? work_->status() : Status(); }
  // Counts the waiting time as that of a collective (comm/transport/waited.h); otherwise it counts as that of messages.
  void count_as_collective() { kind_ = &detail::Waited::collectives; }

 private:
  void end() noexcept {
    if (std::uncaught_exceptions() > exceptions_) return cancel();
    try {
      wait();
    } catch (...) {  // the next call throws the same error
    }
  }

  std::unique_ptr<PendingWork> work_;
  bool open_ = false;
  double detail::Waited::*kind_ = &detail::Waited::messages;
  int exceptions_ = std::uncaught_exceptions();
};

// For transports: makes a Pending from the arguments of Work's constructor.
template <class Work, class... Arguments>
Pending pending(Arguments&&... arguments) {
  return Pending(std::make_unique<Work>(std::forward<Arguments>(arguments)...));
}

}  // namespace mpigrad

#endif
