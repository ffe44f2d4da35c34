#include "framework/tensor/storage.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

#include "framework/cuda/cuda.h"
#include "framework/error.h"

namespace mpigrad {
namespace {

thread_local DeviceKind thread_device = DeviceKind::cpu;

// Fresh pages cost about as much as a pass over the data, so large blocks are never given back to the system between steps.
// They live in one reserved address range, first fit at the lowest address with neighbours merged: the pages ever touched
// stay near the true peak, and blocks return to the same addresses when shapes repeat.
class Pool {
 public:
  static constexpr std::size_t granule = 4096;
  static constexpr std::size_t smallest = 64 * 1024;  // below, malloc is good enough

  Pool() {
    const auto physical = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    size_ = physical * 4;
    void* range = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) {  // a limit on address space: fall back to malloc alone
      size_ = 0;
      return;
    }
    base_ = static_cast<std::byte*>(range);
    madvise(base_, size_, MADV_HUGEPAGE);
    free_[0] = size_;
  }

  std::byte* allocate(std::size_t bytes) {
    if (bytes < smallest) return plain(bytes);
    bytes = (bytes + granule - 1) / granule * granule;
    {
      std::lock_guard lock(mutex_);
      for (auto block = free_.begin(); block != free_.end(); ++block) {
        if (block->second < bytes) continue;
        const auto [offset, length] = *block;
        free_.erase(block);
        if (length > bytes) free_[offset + bytes] = length - bytes;
        used_[offset] = bytes;
        return base_ + offset;
      }
    }
    return plain(bytes);
  }

  void release(std::byte* data) {
    if (data < base_ || data >= base_ + size_) return std::free(data);
    std::lock_guard lock(mutex_);
    const auto used = used_.find(static_cast<std::size_t>(data - base_));
    auto offset = used->first, length = used->second;
    used_.erase(used);
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == offset + length) length += next->second, next = free_.erase(next);
    if (next != free_.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == offset) {
        before->second += length;
        return;
      }
    }
    free_.emplace_hint(next, offset, length);
  }

 private:
  static std::byte* plain(std::size_t bytes) {
    void* data = std::aligned_alloc(64, (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64);
    if (!data) fail("[storage] out of memory: {} bytes were asked for", bytes);
    return static_cast<std::byte*>(data);
  }

  std::mutex mutex_;
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  std::map<std::size_t, std::size_t> free_, used_;
};

// Never destroyed: tensors with static storage duration may outlive it otherwise.
Pool& pool() {
  static Pool* instance = new Pool;
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

void Storage::allocate() const {
  if (device_ == DeviceKind::cuda) {
    require(cuda::available(), "[storage] {}", cuda::unavailable());
    data_ = static_cast<std::byte*>(cuda::allocate(bytes_));
  }
  if (device_ == DeviceKind::cpu) data_ = pool().allocate(static_cast<std::size_t>(bytes_));
  counters(device_).add(bytes_);
}

void Storage::release() const {
  if (device_ == DeviceKind::cpu) pool().release(data_);
  if (device_ == DeviceKind::cuda) cuda::release(data_);
  data_ = nullptr;
  counters(device_).add(-bytes_);
}

void Storage::drop() {
  if (!recipe_ || dropped_ || foreign_ || device_ == DeviceKind::cuda) return;
  if (room_claimed_ && data_) {
    const auto before = recipe_->begin, behind = bytes_ - recipe_->end;
    around_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(before + behind));
    std::copy_n(data_, before, around_.get());
    std::copy_n(data_ + recipe_->end, behind, around_.get() + before);
  }
  release();
  dropped_ = true;
}

void Storage::restore() const {
  dropped_ = false;
  allocate();
  if (around_) {
    const auto before = recipe_->begin;
    std::copy_n(around_.get(), before, data_);
    std::copy_n(around_.get() + before, bytes_ - recipe_->end, data_ + recipe_->end);
    around_.reset();
  }
  // Nobody but this object owns its memory, and it lives for the call.
  recipe_->compute(std::shared_ptr<Storage>(std::shared_ptr<void>(), const_cast<Storage*>(this)));
}

Storage::Storage(void* memory, std::int64_t bytes, DeviceKind device, std::function<void()> release)
    : data_(static_cast<std::byte*>(memory)), bytes_(bytes), device_(device), foreign_(true), release_(std::move(release)) {}

Storage::~Storage() {
  if (foreign_) {
    if (release_) release_();
    return;
  }
  if (!dropped_) release();
}

MemoryStatistics memory_statistics(DeviceKind device) {
  auto& count = counters(device);
  return {count.current.load(), count.peak.load(), count.allocations.load()};
}

void reset_peak_memory(DeviceKind device) {
  auto& count = counters(device);
  count.peak = count.current.load();
}

}  // namespace mpigrad
