#pragma once
// Memory of one thread that only grows, for what a kernel needs while it runs.

#include <cstddef>
#include <memory>
#include <new>

namespace mpigrad::cpu {

class ThreadBuffer {
 public:
  void* reserve(std::size_t bytes) {
    if (bytes > capacity_) {
      data_.reset();
      data_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{alignment})));
      capacity_ = bytes;
    }
    return data_.get();
  }

 private:
  static constexpr std::size_t alignment = 64;
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{alignment}); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t capacity_ = 0;
};

}  // namespace mpigrad::cpu
