#include "framework/cuda/cuda.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/cuda/check.h"
#include "framework/cuda/kernels.h"
#include "framework/cuda/recording.h"
#include "framework/error.h"
#include "framework/op.h"

namespace mpigrad::cuda {
namespace {

struct Counters {
  std::atomic<std::int64_t> synchronisations{0}, throttles{0}, to_device{0}, to_host{0}, on_device{0};
};
Counters counters;

// Asked once: what a process sees does not change.
struct Presence {
  int devices = 0;
  std::string reason;
  Presence() {
    const auto code = cudaGetDeviceCount(&devices);
    if (code != cudaSuccess) {
      devices = 0;
      reason = fmt::format("this machine has no GPU that CUDA can use: {}", cudaGetErrorString(code));
      static_cast<void>(cudaGetLastError());  // or the next check would see it
    } else if (devices == 0) {
      reason = "this machine has no GPU";
    }
  }
};
const Presence& presence() {
  static const Presence instance;
  return instance;
}

void count_synchronisation() { counters.synchronisations.fetch_add(1, std::memory_order_relaxed); }

bool poisons() {
  static const bool asked = [] {
    const char* value = std::getenv("MPIGRAD_GPU_POISON");
    return value && *value && std::string_view(value) != "0";
  }();
  return asked;
}

// Pinned buffers through which pageable memory travels; each is free again when its event is reached.
class Staging {
 public:
  static constexpr std::int64_t largest = 16 << 20;
  static constexpr std::int64_t most = 256 << 20;  // beyond, the host waits for the oldest

  struct Buffer {
    PinnedBuffer memory;
    Event busy;
  };

  Buffer take(std::int64_t bytes) {
    std::int64_t size = 64 << 10;
    while (size < bytes) size *= 2;
    for (auto at = idle_.begin(); at != idle_.end(); ++at) {
      if (at->memory.bytes() != size || !at->busy.reached()) continue;
      Buffer found = std::move(*at);
      idle_.erase(at);
      return found;
    }
    while (total_ + size > most && !idle_.empty()) {  // the oldest make room
      idle_.front().busy.synchronise();
      total_ -= idle_.front().memory.bytes();
      idle_.pop_front();
    }
    total_ += size;
    return {PinnedBuffer(size), Event()};
  }
  void give_back(Buffer buffer) { idle_.push_back(std::move(buffer)); }

 private:
  std::deque<Buffer> idle_;  // in the order of their events
  std::int64_t total_ = 0;
};

struct Context {
  explicit Context(int index)
      : device(index), allocator({.allocate = [index](std::int64_t bytes) { return driver_allocate(index, bytes); },
                                  .release = [index](void* segment) { driver_release(index, segment); }}) {
    MPIGRAD_CUDA(cudaSetDevice(device));
    int lowest = 0, highest = 0;
    MPIGRAD_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    MPIGRAD_CUDA(cudaStreamCreateWithPriority(&compute, cudaStreamNonBlocking, (lowest + highest) / 2));
    MPIGRAD_CUDA(cudaStreamCreateWithPriority(&halo, cudaStreamNonBlocking, highest));
    MPIGRAD_CUDA(cudaStreamCreateWithPriority(&bucket, cudaStreamNonBlocking, lowest));
    MPIGRAD_CUDA(cudaStreamCreateWithPriority(&copy, cudaStreamNonBlocking, (lowest + highest) / 2));
    MPIGRAD_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    void* record = nullptr;
    MPIGRAD_CUDA(cudaHostAlloc(&record, sizeof(Fault), cudaHostAllocPortable | cudaHostAllocMapped));
    fault_ = new (record) Fault;
  }
  Fault* fault() const { return fault_; }

  // The allocator may be asked on a thread that uses another GPU.
  template <class F>
  static auto on_device(int index, F&& f) {
    int previous = index;
    static_cast<void>(cudaGetDevice(&previous));
    if (previous != index) static_cast<void>(cudaSetDevice(index));
    const auto result = f();
    if (previous != index) static_cast<void>(cudaSetDevice(previous));
    return result;
  }
  static void* driver_allocate(int index, std::int64_t bytes) {
    void* segment = nullptr;
    const auto code = on_device(index, [&] { return cudaMalloc(&segment, static_cast<std::size_t>(bytes)); });
    if (code == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      return nullptr;
    }
    check(code, "cudaMalloc");
    return segment;
  }
  static void driver_release(int index, void* segment) {
    // cudaFree waits for the GPU, so that no kernel still uses the segment.
    count_synchronisation();
    check(on_device(index, [&] { return cudaFree(segment); }), "cudaFree");
  }

  const int device;
  cudaStream_t compute{}, halo{}, bucket{}, copy{};
  cudaEvent_t event{};  // of wait(): a stream that waits for an event waits for its state at the call
  CachingAllocator allocator;
  Staging staging;

 private:
  Fault* fault_ = nullptr;
};

// Contexts outlive their threads, because tensors do; a later thread takes over what an earlier one left. Never destroyed.
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

Context& context() {
  require(available(), "[cuda] {}", unavailable());
  return lease.of(thread_index);
}

void throw_fault(const Context& here) {
  const Fault found = *here.fault();
  if (found.kind == FaultKind::none) return;
  *here.fault() = {};
  const auto late = "(found when the host next waited for the GPU)";
  switch (found.kind) {
    case FaultKind::take: fail("[take] index {} is outside the {} rows {}", found.index, found.limit, late);
    case FaultKind::scatter_add: fail("[scatter_add] index {} is outside {} rows {}", found.index, found.limit, late);
    default: fail("[cross_entropy] label {} is not one of {} classes and not ignored {}", found.index, found.limit, late);
  }
}

void count_copy(cudaMemcpyKind kind, std::int64_t bytes) {
  auto& counter = kind == cudaMemcpyHostToDevice   ? counters.to_device
                  : kind == cudaMemcpyDeviceToHost ? counters.to_host
                                                   : counters.on_device;
  counter.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace

void fail_call(cudaError_t code, const char* call) {
  static_cast<void>(cudaGetLastError());  // or the next launch would find it, where someone goes on after this
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
  MPIGRAD_CUDA(cudaStreamSynchronize(native(stream)));
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
  MPIGRAD_CUDA(cudaEventSynchronize(static_cast<cudaEvent_t>(event_)));
}

void Event::throttle() const {
  if (!reached()) {
    counters.throttles.fetch_add(1, std::memory_order_relaxed);
    MPIGRAD_CUDA(cudaEventSynchronize(static_cast<cudaEvent_t>(event_)));
  }
  // A kernel may still be writing down what it found.
  if (context().fault()->kind != FaultKind::none) cuda::synchronise(compute_stream());
}

Statistics statistics() {
  return {counters.synchronisations.load(), counters.throttles.load(), counters.to_device.load(), counters.to_host.load(),
          counters.on_device.load()};
}

void* allocate(std::int64_t bytes) {
  auto& here = context();
  void* memory = here.allocator.allocate(bytes);
  if (!memory && !recording() && trim_memory() > 0)
    memory = here.allocator.allocate(bytes);  // other threads' caches on the same GPU
  if (memory) {
    if (poisons()) {  // also behind the last element, with something that most functions change
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
  // Of another thread's context: its stream is made to wait before it can use the memory again.
  Context* mine = lease.held();
  if (mine && mine->allocator.release(memory)) return;
  auto& known = contexts();
  std::lock_guard lock(known.mutex);
  for (auto* other : known.all) {
    if (other == mine || !other->allocator.owns(memory)) continue;
    if (recording()) {  // waiting would draw the other stream into what is captured
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

PinnedBuffer::PinnedBuffer(std::int64_t bytes) : bytes_(bytes) {
  context();
  void* memory = nullptr;
  MPIGRAD_CUDA(cudaHostAlloc(&memory, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)), cudaHostAllocPortable));
  data_ = static_cast<std::byte*>(memory);
}
PinnedBuffer::~PinnedBuffer() {
  if (data_) static_cast<void>(cudaFreeHost(data_));
}
PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void copy(void* to, const void* from, std::int64_t bytes, Stream stream) {
  if (bytes == 0) return;
  MPIGRAD_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, native(stream)));
}

void copy_to_device(void* to, const void* from, std::int64_t bytes) {
  auto& here = context();
  if (auto* captured = recording(); captured && bytes > 0) {
    MPIGRAD_CUDA(
        cudaMemcpyAsync(to, captured->kept(from, bytes), static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, here.compute));
    return;
  }
  for (std::int64_t at = 0; at < bytes; at += Staging::largest) {
    const auto part = std::min(Staging::largest, bytes - at);
    const auto size = static_cast<std::size_t>(part);
    auto buffer = here.staging.take(part);
    std::memcpy(buffer.memory.data(), static_cast<const std::byte*>(from) + at, size);
    MPIGRAD_CUDA(
        cudaMemcpyAsync(static_cast<std::byte*>(to) + at, buffer.memory.data(), size, cudaMemcpyHostToDevice, here.compute));
    buffer.busy.record(here.compute);
    here.staging.give_back(std::move(buffer));
  }
  count_copy(cudaMemcpyHostToDevice, bytes);
}

void copy_to_host(void* to, const void* from, std::int64_t bytes) {
  require_not_recording("a copy to the host");
  auto& here = context();
  for (std::int64_t at = 0; at < bytes; at += Staging::largest) {
    const auto part = std::min(Staging::largest, bytes - at);
    const auto size = static_cast<std::size_t>(part);
    auto buffer = here.staging.take(part);
    MPIGRAD_CUDA(cudaMemcpyAsync(buffer.memory.data(), static_cast<const std::byte*>(from) + at, size, cudaMemcpyDeviceToHost,
                                 here.compute));
    synchronise(here.compute);
    std::memcpy(static_cast<std::byte*>(to) + at, buffer.memory.data(), size);
    here.staging.give_back(std::move(buffer));
  }
  count_copy(cudaMemcpyDeviceToHost, bytes);
}

void copy_on_device(void* to, const void* from, std::int64_t bytes) {
  if (bytes == 0) return;
  MPIGRAD_CUDA(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, native(compute_stream())));
  count_copy(cudaMemcpyDeviceToDevice, bytes);
}

void zero(void* memory, std::int64_t bytes) {
  if (bytes == 0) return;
  MPIGRAD_CUDA(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes), native(compute_stream())));
}

void copy_strided(void* to, const void* from, std::int64_t item, const StridedArrays<2>& walk, Stream stream) {
  if (walk.elements() == 0) return;
  auto arrays = walk.collapsed();
  // As wide as strides, extents and both addresses allow, up to 16 bytes at a time.
  const auto either = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  std::int64_t most = 16 / item;
  while (most > 1 && either % static_cast<std::uintptr_t>(most * item) != 0) most /= 2;
  const auto width = arrays.widest(most);
  arrays = arrays.widened(width);
  const StridedWalk<2> kernel_walk(arrays);
  const auto count = arrays.elements();
  switch (item * width) {
    case 1: return move_elements<1>(to, from, kernel_walk, count, stream);
    case 2: return move_elements<2>(to, from, kernel_walk, count, stream);
    case 4: return move_elements<4>(to, from, kernel_walk, count, stream);
    case 8: return move_elements<8>(to, from, kernel_walk, count, stream);
    default: return move_elements<16>(to, from, kernel_walk, count, stream);
  }
}

void add_strided(void* to, const void* from, DType dtype, const StridedArrays<2>& walk, Stream stream) {
  if (walk.elements() == 0) return;
  const StridedWalk<2> kernel_walk(walk.collapsed());
  visit_any(dtype, [&](auto zero_of_type) {
    using T = decltype(zero_of_type);
    add_elements(static_cast<T*>(to), static_cast<const T*>(from), kernel_walk, walk.elements(), stream);
  });
}

void fill(void* memory, std::int64_t count, std::int64_t item, const void* value) {
  const auto with = [&](auto zero_of_width) {
    using T = decltype(zero_of_width);
    T bits{};
    std::memcpy(&bits, value, sizeof(T));
    if (bits == 0) zero(memory, count * item);
    else fill_elements(static_cast<T*>(memory), bits, count, compute_stream());
  };
  switch (item) {
    case 1: return with(std::uint8_t{});
    case 2: return with(std::uint16_t{});
    case 4: return with(std::uint32_t{});
    case 8: return with(std::uint64_t{});
    default: fail("[cuda] there are no elements of {} bytes", item);
  }
}

}  // namespace mpigrad::cuda
