#pragma once
// Memory of one thread that only grows, for scratch data of kernels.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace mpigrad::cpu {

// For tests: while a guard exists, every reserve() of a ThreadBuffer returns new memory of exactly the requested size, filled
// with NaN, between two guard zones. A kernel that reads memory before it has written it computes NaN. A write to a guard zone is
// counted at the buffer's next reserve() or when its thread ends.
class BufferGuard {
 public:
  static constexpr std::size_t zone = 1 << 14;
  static constexpr int pattern = 0xff;  // NaN in every floating type

  BufferGuard() { ++alive; }
  ~BufferGuard() { --alive; }
  BufferGuard(const BufferGuard&) = delete;
  BufferGuard& operator=(const BufferGuard&) = delete;

  static bool is_alive() { return alive > 0; }
  // Number of buffers with writes outside their memory.
  static inline std::atomic<int> damaged = 0;

 private:
  static inline std::atomic<int> alive = 0;
};

class ThreadBuffer {
 public:
  ThreadBuffer() = default;
  ~ThreadBuffer() { release(); }
  ThreadBuffer(const ThreadBuffer&) = delete;
  ThreadBuffer& operator=(const ThreadBuffer&) = delete;

  void* reserve(std::size_t bytes) {
    const std::size_t zone = BufferGuard::is_alive() ? BufferGuard::zone : 0;
    if (bytes > capacity_ || zone > 0) {
      release();
      data_.reset(static_cast<std::byte*>(::operator new (bytes + 2 * zone, std::align_val_t{alignment})));
      capacity_ = bytes, zone_ = zone;
      if (zone > 0) std::memset(data_.get(), BufferGuard::pattern, bytes + 2 * zone);
    }
    return data_.get() + zone_;
  }

 private:
  static constexpr std::size_t alignment = 64;
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{alignment}); }
  };

  void release() {
    if (data_ && zone_ > 0) {
      const auto is_written = [](std::byte b) { return b != std::byte{BufferGuard::pattern}; };
      const std::byte* const behind = data_.get() + zone_ + capacity_;
      if (std::any_of(data_.get(), data_.get() + zone_, is_written) || std::any_of(behind, behind + zone_, is_written))
        ++BufferGuard::damaged;
    }
    data_.reset();
    capacity_ = 0;
  }

  std::unique_ptr<std::byte, Free> data_;
  std::size_t capacity_ = 0, zone_ = 0;
};

}  // namespace mpigrad::cpu
