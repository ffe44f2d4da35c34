#include "comm/transport/nccl/connection.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "framework/base/error.h"
#include "framework/cuda/check.h"

namespace mpigrad {
namespace nccl {
namespace {

constexpr int implicit_order_version = 22600;

// Kernels of two communicators that run at the same time on one GPU may deadlock, unless all GPUs start them in the same order.
// From 2.26 on NCCL can enforce the order of the host's calls (its manual, "Environment Variables"). This is requested here
// before NCCL reads its variables, unless the user has set the variable.
int version() {
  static const int known = [] {
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    int found = 0;
    static_cast<void>(ncclGetVersion(&found));
    return found;
  }();
  return known;
}

// Before 2.26: orders all calls on this rank's streams.
thread_local cuda::Stream last_stream = nullptr;
void order_after_last(cuda::Stream stream) {
  if (version() >= implicit_order_version) return;
  if (last_stream && last_stream != stream) cuda::wait(stream, last_stream);
  last_stream = stream;
}

// While there are connections, a thread polls each of them once a second for errors: a rank whose host waits for its GPU would
// not notice that another rank is gone, and its kernels would never end.
class Monitor {
 public:
  void add(Connection* connection) {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) {
      stop_ = std::make_shared<bool>(false);
      thread_ = std::thread([this, stop = stop_] { run(*stop); });
    }
    connections_.push_back(connection);
  }
  void remove(Connection* connection) {
    std::thread finished;
    {
      const std::lock_guard lock(mutex_);
      connections_.erase(std::find(connections_.begin(), connections_.end(), connection));
      if (!connections_.empty()) return;
      *stop_ = true;
      finished = std::move(thread_);
    }
    changed_.notify_all();
    finished.join();
  }

 private:
  void run(const bool& stop) {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::seconds(1), [&] { return stop; }))
      for (auto* connection : connections_) {
        const auto error = connection->poll();
        if (error.empty()) continue;
        auto& host = connection->host();
        const auto line = fmt::format("[rank {} of {}] {}\n", host.rank(), host.size(), error);
        std::fwrite(line.data(), 1, line.size(), stderr);
        host.abort(1);
      }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Connection*> connections_;
  std::thread thread_;
  std::shared_ptr<bool> stop_;  // of this thread: another may start before one has noticed its end
};

Monitor& monitor() {
  static auto* instance = new Monitor;  // connections may outlive static objects
  return *instance;
}

}  // namespace

Connection::Connection(std::shared_ptr<Transport> host, Lane lane) : host_(std::move(host)), lane_(lane) {
  require(cuda::available(), "[nccl] {}", cuda::unavailable());
  static_cast<void>(version());
  static_cast<void>(stream());  // makes this thread's GPU the current one
  connect();
  monitor().add(this);
}

void Connection::connect() {
  ncclUniqueId id = {};
  if (host_->rank() == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  host_->bcast(id.internal, NCCL_UNIQUE_ID_BYTES, DType::uint8, 0);
  check(ncclCommInitRank(&communicator_, host_->size(), id, host_->rank()), "ncclCommInitRank");
}

Connection::Connection(std::shared_ptr<Transport> host, Connection& parent, int color, int key)
    : host_(std::move(host)), lane_(parent.lane_) {
  static_cast<void>(stream());
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0)
  // No operation may be under way on the parent during the split (NCCL's manual, "ncclCommSplit").
  cuda::synchronise(stream());
  // The communicators share no resources: errors of one do not affect the other, and both may work at the same time.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.splitShare = 0;
  const std::lock_guard lock(parent.mutex_);
  parent.check(ncclCommSplit(parent.communicator_, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &communicator_, &config),
               "ncclCommSplit");
#else
  static_cast<void>(color), static_cast<void>(key);
  if (host_) connect();
#endif
  if (communicator_) monitor().add(this);
}

Connection::~Connection() {
  if (!communicator_) return;
  monitor().remove(this);
  // ncclCommDestroy waits until all ranks have called it; after an error they may never do so.
  static_cast<void>(failed_ || std::uncaught_exceptions() > 0 ? ncclCommAbort(communicator_) : ncclCommDestroy(communicator_));
}

cuda::Stream Connection::stream() const { return lane_ == Lane::halos ? cuda::halo_stream() : cuda::bucket_stream(); }

void Connection::begin(std::string_view call) {
  if (const auto error = asynchronous_error(); !error.empty()) throw Error(error);
  call_ = call;
  ++calls_;
  cuda::wait(stream(), cuda::compute_stream());
  order_after_last(stream());
}

void Connection::check(ncclResult_t code, const char* what) {
  if (code == ncclSuccess) return;
  failed_ = true;
  const char* last = ncclGetLastError(communicator_);
  fail("[nccl] {}: {} failed: {}{}{}", call_, what, ncclGetErrorString(code), last && *last ? "; " : "", last ? last : "");
}

std::string Connection::asynchronous_error() {
  ncclResult_t state = ncclSuccess;
  const auto asked = ncclCommGetAsyncError(communicator_, &state);
  if (asked != ncclSuccess) state = asked;
  if (state == ncclSuccess || state == ncclInProgress) return {};
  failed_ = true;
  const char* last = ncclGetLastError(communicator_);
  return fmt::format("[nccl] an error after {}, call {} of this communicator: {}{}{}", call_, calls_, ncclGetErrorString(state),
                     last && *last ? "; " : "", last ? last : "");
}

void Connection::check_asynchronous() {
  const std::lock_guard lock(mutex_);
  if (const auto error = asynchronous_error(); !error.empty()) throw Error(error);
}

std::string Connection::poll() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() ? asynchronous_error() : std::string();
}

}  // namespace nccl

bool nccl_available() { return cuda::available(); }

std::string nccl_gpu() {
  if (!cuda::available()) return {};
  char bus[32] = {};
  MPIGRAD_CUDA(cudaDeviceGetPCIBusId(bus, sizeof(bus), cuda::selected()));
  return bus;
}

}  // namespace mpigrad
