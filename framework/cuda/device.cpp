#include "framework/cuda/cuda.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/op_scope.h"
#include "framework/cuda/context.h"
#include "framework/cuda/recording.h"
#include "framework/engine/activity.h"

namespace mpigrad::cuda {
namespace {

// Queried once: the GPUs of a process do not change.
struct Presence {
  int devices = 0;
  std::string reason;
  Presence() {
    const auto code = cudaGetDeviceCount(&devices);
    if (code != cudaSuccess) {
      devices = 0;
      reason = fmt::format("this machine has no GPU that CUDA can use: {}", cudaGetErrorString(code));
      static_cast<void>(cudaGetLastError());  // clears the error for the next check
    } else if (devices == 0) {
      reason = "this machine has no GPU";
    }
  }
};
const Presence& presence() {
  static const Presence instance;
  return instance;
}

bool poisons() {
  static const bool asked = [] {
    const char* value = std::getenv("MPIGRAD_GPU_POISON");
    return value && *value && std::string_view(value) != "0";
  }();
  return asked;
}

// Contexts outlive their threads, because tensors do; a later thread takes over the context of an ended one. Never destroyed.
struct Contexts {
  std::mutex mutex;
  std::vector<Context*> all, idle;
};
Contexts& contexts() {
  static auto* instance = new Contexts;
  return *instance;
}

class Lease {
 public:
  ~Lease() { give_back(); }
  Context& of(int index) {
    if (context_ && context_->device == index) return *context_;
    give_back();
    auto& known = contexts();
    std::lock_guard lock(known.mutex);
    const auto found = std::find_if(known.idle.begin(), known.idle.end(), [&](auto* c) { return c->device == index; });
    if (found != known.idle.end()) {
      context_ = *found;
      known.idle.erase(found);
      MPIGRAD_CUDA(cudaSetDevice(index));
    } else {
      known.all.push_back(context_ = new Context(index));
    }
    return *context_;
  }
  Context* held() const { return context_; }

 private:
  void give_back() {
    if (!context_) return;
    auto& known = contexts();
    std::lock_guard lock(known.mutex);
    known.idle.push_back(std::exchange(context_, nullptr));
  }
  Context* context_ = nullptr;
};

thread_local Lease lease;
thread_local int thread_index = 0;

void throw_fault(const Context& here) {
  const Fault found = *here.fault();
  if (found.kind != FaultKind::none) *here.fault() = {};
  const auto late = "(found when the host next waited for the GPU)";
  switch (found.kind) {
    case FaultKind::take: fail("[take] index {} is outside the {} rows {}", found.index, found.limit, late);
    case FaultKind::scatter_add: fail("[scatter_add] index {} is outside {} rows {}", found.index, found.limit, late);
    case FaultKind::none: return;
    case FaultKind::label:
      fail("[cross_entropy] label {} is not one of {} classes and not ignored {}", found.index, found.limit, late);
  }
}

}  // namespace

Counters& counters() {
  static Counters instance;
  return instance;
}

Context& context() {
  require(available(), "[cuda] {}", unavailable());
  return lease.of(thread_index);
}

void fail_call(cudaError_t code, const char* call) {
  static_cast<void>(cudaGetLastError());  // clears the error for later launches, if the program continues
  const auto op = detail::current_op();
  fail("[cuda] {} failed{}{}: {} ({}), GPU {}", call, op.empty() ? "" : " in ", op, cudaGetErrorString(code),
       cudaGetErrorName(code), thread_index);
}

bool available() { return presence().devices > 0; }
std::string unavailable() { return presence().reason; }
int devices() { return presence().devices; }

void select(int index) {
  require(available(), "[cuda] {}", unavailable());
  require(index >= 0 && index < devices(), "[cuda] GPU {} is not one of {}", index, devices());
  thread_index = index;
  lease.of(index);
}
int selected() { return thread_index; }
std::string name() {
  cudaDeviceProp properties{};
  MPIGRAD_CUDA(cudaGetDeviceProperties(&properties, context().device));
  return properties.name;
}

std::int64_t total_memory() { return context().total_memory; }

Stream compute_stream() { return context().compute; }
Stream halo_stream() { return context().halo; }
Stream bucket_stream() { return context().bucket; }
Stream copy_stream() { return context().copy; }

void wait(Stream stream, Stream after) {
  if (stream == after) return;
  const auto event = context().event;
  MPIGRAD_CUDA(cudaEventRecord(event, native(after)));
  MPIGRAD_CUDA(cudaStreamWaitEvent(native(stream), event, 0));
}

void synchronise(Stream stream) {
  require_not_recording("the host");
  count_synchronisation();
  {
    const detail::GpuWait wait;
    MPIGRAD_CUDA(cudaStreamSynchronize(native(stream)));
  }
  throw_fault(context());
}

Fault* fault_record() { return context().fault(); }

Event::Event() {
  context();
  cudaEvent_t event{};
  MPIGRAD_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  event_ = event;
}
Event::~Event() {
  if (event_) static_cast<void>(cudaEventDestroy(static_cast<cudaEvent_t>(event_)));
}
Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
Event& Event::operator=(Event&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}
void Event::record(Stream stream) { MPIGRAD_CUDA(cudaEventRecord(static_cast<cudaEvent_t>(event_), native(stream))); }
void Event::hold(Stream stream) const { MPIGRAD_CUDA(cudaStreamWaitEvent(native(stream), static_cast<cudaEvent_t>(event_), 0)); }
bool Event::reached() const {
  const auto code = cudaEventQuery(static_cast<cudaEvent_t>(event_));
  if (code == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  check(code, "cudaEventQuery");
  return true;
}
void Event::synchronise() const {
  require_not_recording("the host");
  count_synchronisation();
  const detail::GpuWait wait;
  MPIGRAD_CUDA(cudaEventSynchronize(static_cast<cudaEvent_t>(event_)));
}

void Event::throttle() const {
  if (!reached()) {
    counters().throttles.fetch_add(1, std::memory_order_relaxed);
    const detail::GpuWait wait;
    MPIGRAD_CUDA(cudaEventSynchronize(static_cast<cudaEvent_t>(event_)));
  }
  // A kernel may still be writing its fault.
  if (context().fault()->kind != FaultKind::none) cuda::synchronise(compute_stream());
}

Statistics statistics() {
  return {counters().synchronisations.load(), counters().throttles.load(), counters().to_device.load(), counters().to_host.load(),
          counters().on_device.load()};
}

void* allocate(std::int64_t bytes) {
  auto& here = context();
  void* memory = here.allocator.allocate(bytes);
  if (!memory && !recording() && trim_memory() > 0)
    memory = here.allocator.allocate(bytes);  // with memory from caches of other threads on the same GPU
  if (memory) {
    if (poisons()) {  // also after the last element, with a value that most functions change
      constexpr auto granule = CachingAllocator::granule;
      const auto size = static_cast<std::size_t>(bytes), rest = static_cast<std::size_t>((granule - bytes % granule) % granule);
      MPIGRAD_CUDA(cudaMemsetAsync(memory, 0xFF, size, here.compute));
      MPIGRAD_CUDA(cudaMemsetAsync(static_cast<std::byte*>(memory) + bytes, 0x7F, rest, here.compute));
    }
    return memory;
  }
  const auto op = detail::current_op();
  std::size_t free = 0, total = 0;
  static_cast<void>(cudaMemGetInfo(&free, &total));
  fail("[{}] out of GPU memory: {} bytes were asked for on GPU {}, which has {} of {} bytes free; this rank's allocator: {}",
       op.empty() ? "cuda" : op, bytes, here.device, free, total, to_string(here.allocator.statistics()));
}

void release(void* memory) noexcept {
  if (!memory) return;
  // Memory of another thread's context: its stream waits before it can reuse the memory.
  Context* mine = lease.held();
  if (mine && mine->allocator.release(memory)) return;
  auto& known = contexts();
  std::lock_guard lock(known.mutex);
  for (auto* other : known.all) {
    if (other == mine || !other->allocator.owns(memory)) continue;
    if (recording()) {  // waiting would include the other stream in the capture
      recording()->release_later(memory);
      return;
    }
    if (mine) {
      static_cast<void>(cudaEventRecord(mine->event, mine->compute));
      static_cast<void>(cudaStreamWaitEvent(other->compute, mine->event, 0));
    }
    other->allocator.release(memory);
    return;
  }
}

CachingAllocator& allocator_of_this_thread() { return context().allocator; }
AllocatorStatistics memory() { return context().allocator.statistics(); }
AllocatorStatistics memory_of_process() {
  AllocatorStatistics sum;
  auto& known = contexts();
  std::lock_guard lock(known.mutex);
  for (const auto* each : known.all) {
    const auto one = each->allocator.statistics();
    sum.current += one.current, sum.peak += one.peak;
    sum.reserved += one.reserved, sum.peak_reserved += one.peak_reserved;
    sum.largest_free = std::max(sum.largest_free, one.largest_free);
    sum.pools += one.pools;
    sum.allocations += one.allocations, sum.segments_requested += one.segments_requested, sum.retries += one.retries;
  }
  return sum;
}
void reset_peak_memory() {
  auto& known = contexts();
  std::lock_guard lock(known.mutex);
  for (auto* each : known.all) each->allocator.reset_peak();
}
std::int64_t trim_memory() {
  auto& known = contexts();
  std::lock_guard lock(known.mutex);
  std::int64_t bytes = 0;
  for (auto* each : known.all) bytes += each->allocator.trim();
  return bytes;
}

}  // namespace mpigrad::cuda
