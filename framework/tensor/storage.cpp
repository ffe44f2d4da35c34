#include "framework/tensor/storage.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "framework/base/error.h"
#include "framework/base/host_pool.h"
#include "framework/cuda/cuda.h"

namespace mpigrad {
namespace {

thread_local DeviceKind thread_device = DeviceKind::cpu;

// Never destroyed: tensors with static storage duration may outlive it otherwise.
HostPool& pool() {
  static HostPool* instance =
      new HostPool(4 * static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  return *instance;
}

struct Counters {
  std::atomic<std::int64_t> current{0}, peak{0}, allocations{0};
  void add(std::int64_t bytes) {
    const auto now = current.fetch_add(bytes) + bytes;
    if (bytes <= 0) return;
    ++allocations;
    auto seen = peak.load();
    while (now > seen && !peak.compare_exchange_weak(seen, now)) {
    }
  }
};

Counters& counters(DeviceKind device) {
  static Counters real, gpu;
  thread_local Counters dry;
  return device == DeviceKind::dry ? dry : device == DeviceKind::cuda ? gpu : real;
}

}  // namespace

DeviceKind current_device() { return thread_device; }
UseDevice::UseDevice(DeviceKind kind) : previous_(thread_device) { thread_device = kind; }
UseDevice::~UseDevice() { thread_device = previous_; }

Storage::Storage(std::int64_t bytes, DeviceKind device, std::int64_t room) : bytes_(bytes), room_(room), device_(device) {
  allocate();
}

std::shared_ptr<Storage> Storage::stand_in(std::int64_t bytes) {
  auto storage = std::make_shared<Storage>(0, DeviceKind::dry);
  storage->bytes_ = bytes, storage->stand_in_ = true;
  return storage;
}

void Storage::allocate() const {
  if (device_ == DeviceKind::cuda) {
    require(cuda::available(), "[storage] {}", cuda::unavailable());
    data_ = static_cast<std::byte*>(cuda::allocate(bytes_));
  }
  if (device_ == DeviceKind::cpu) data_ = pool().allocate(static_cast<std::size_t>(bytes_));
  counters(device_).add(bytes_);
}

void Storage::release() const {
  if (stand_in_) return;
  if (device_ == DeviceKind::cpu) pool().release(data_);
  if (device_ == DeviceKind::cuda) cuda::release(data_);
  data_ = nullptr;
  counters(device_).add(-bytes_);
}

void Storage::drop() {
  if (!recipe_ || dropped_ || foreign_ || stand_in_) return;
  if (room_claimed_ && data_) {
    const auto before = recipe_->begin, behind = bytes_ - recipe_->end;
    around_ = std::make_unique<Storage>(before + behind, device_);
    detail::copy_bytes(device_, around_->data_, data_, before);
    detail::copy_bytes(device_, around_->data_ + before, data_ + recipe_->end, behind);
  }
  release();
  dropped_ = true;
  incomplete_ = true;
}

void Storage::complete() const {
  if (dropped_) return restore();
  {
    static std::mutex allocating;  // not held while other ranks are awaited
    const std::scoped_lock lock(allocating);
    if (std::exchange(unallocated_, false)) allocate();
  }
  arrival_->finish(data_);
  incomplete_ = false;
}

void Storage::await(std::shared_ptr<Arrival> arrival) {
  arrival_ = std::move(arrival);
  incomplete_ = true;
}

std::shared_ptr<Storage> Storage::arriving(std::int64_t bytes, DeviceKind device, std::shared_ptr<Arrival> arrival) {
  auto storage = std::make_shared<Storage>(nullptr, bytes, device, nullptr);
  storage->foreign_ = false, storage->unallocated_ = true;
  storage->await(std::move(arrival));
  return storage;
}

Storage::Storage(std::shared_ptr<Storage> whole, std::int64_t offset, std::int64_t bytes)
    : data_(whole->data() ? whole->data() + offset : nullptr), bytes_(bytes), device_(whole->device()),
      keep_alive_(std::move(whole)), part_(true) {}

std::shared_ptr<Storage> Storage::alias() const {
  auto storage = std::make_shared<Storage>(nullptr, bytes_, device_, keep_alive_);
  storage->data_ = data_, storage->foreign_ = false, storage->part_ = true;
  return storage;
}

void Storage::restore() const {
  dropped_ = incomplete_ = false;
  allocate();
  if (around_) {
    const auto before = recipe_->begin;
    detail::copy_bytes(device_, data_, around_->data_, before);
    detail::copy_bytes(device_, data_ + recipe_->end, around_->data_ + before, bytes_ - recipe_->end);
    around_.reset();
  }
  // The pointer does not own: this object outlives the call.
  recipe_->compute(std::shared_ptr<Storage>(std::shared_ptr<void>(), const_cast<Storage*>(this)));
}

Storage::Storage(void* memory, std::int64_t bytes, DeviceKind device, std::shared_ptr<const void> keep_alive, bool writable)
    : data_(static_cast<std::byte*>(memory)), bytes_(bytes), device_(device), foreign_(true), writable_(writable),
      keep_alive_(std::move(keep_alive)) {}

Storage::~Storage() {
  if (part_) return;
  if (!foreign_) {
    if (!dropped_ && !unallocated_) release();
    return;
  }
  if (device_ != DeviceKind::cuda || !keep_alive_) return;
  try {
    cuda::synchronise(cuda::compute_stream());  // kernels in the queue may still use the memory
  } catch (const Error&) {                      // the next call to the GPU reports the same error
  }
}

MemoryStatistics memory_statistics(DeviceKind device) {
  auto& count = counters(device);
  return {count.current.load(), count.peak.load(), count.allocations.load()};
}

void reset_peak_memory(DeviceKind device) {
  auto& count = counters(device);
  count.peak = count.current.load();
}

namespace detail {

void copy_bytes(DeviceKind device, void* to, const void* from, std::int64_t bytes) {
  if (bytes == 0 || !to || !from || to == from) return;
  if (device == DeviceKind::cuda) cuda::copy_on_device(to, from, bytes);
  else std::memmove(to, from, static_cast<std::size_t>(bytes));
}

void zero_bytes(DeviceKind device, void* memory, std::int64_t bytes) {
  if (bytes == 0 || !memory) return;
  if (device == DeviceKind::cuda) cuda::zero(memory, bytes);
  else std::memset(memory, 0, static_cast<std::size_t>(bytes));
}

}  // namespace detail
}  // namespace mpigrad
