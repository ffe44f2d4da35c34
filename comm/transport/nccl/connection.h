#pragma once
// One NCCL communicator, its errors, and the order of its calls relative to those of other communicators.

#include <nccl.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "comm/transport/transport.h"
#include "framework/cuda/cuda.h"

namespace mpigrad::nccl {

// NCCL's communicators are used by one thread at a time (its manual, "Thread Safety"): the rank's thread, except that the monitor
// asks for errors between two calls.
class Connection {
 public:
  // Collective over the ranks of `host`, which carries the unique id.
  Connection(std::shared_ptr<Transport> host, Lane lane);
  // Collective over the ranks of `parent`, after waiting for its work: the part of equal colours, ordered by (key, rank). `host`
  // is the control communicator; null where this rank has a negative colour, whose connection is empty.
  Connection(std::shared_ptr<Transport> host, Connection& parent, int color, int key);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Transport& host() const { return *host_; }
  Lane lane() const { return lane_; }
  cuda::Stream stream() const;

  // Calls calls(communicator, stream) between ncclGroupStart and ncclGroupEnd, after all work that the compute stream has been
  // given. `call` is the name used in errors.
  template <class Calls>
  void issue(std::string_view call, const Calls& calls) {
    const std::lock_guard lock(mutex_);
    begin(call);
    Group group(*this);
    calls(communicator_, stream());
    group.end();
  }
  // Throws the errors that NCCL's own threads have met since.
  void check_asynchronous();

  // Throws "[nccl] CALL: WHAT failed: TEXT".
  void check(ncclResult_t code, const char* what);
  // For the monitor's thread: the error's text; empty if there is no error or a call is under way.
  std::string poll();

 private:
  // Ends the group even if a call in it throws, because NCCL keeps the nesting per thread.
  class Group {
   public:
    explicit Group(Connection& connection) : connection_(connection) { connection_.check(ncclGroupStart(), "ncclGroupStart"); }
    ~Group() {
      if (open_) static_cast<void>(ncclGroupEnd());
    }
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;
    void end() {
      open_ = false;
      connection_.check(ncclGroupEnd(), "ncclGroupEnd");
    }

   private:
    Connection& connection_;
    bool open_ = true;
  };

  void connect();
  void begin(std::string_view call);
  std::string asynchronous_error();

  std::shared_ptr<Transport> host_;
  Lane lane_;
  ncclComm_t communicator_ = nullptr;
  std::mutex mutex_;
  std::string call_ = "initialisation";  // the last one issued
  std::int64_t calls_ = 0;
  bool failed_ = false;
};

}  // namespace mpigrad::nccl
