#pragma once
// A pool of large blocks of host memory. Fresh pages cost about as much as a pass over the data, so blocks are not returned to
// the system between steps.

#include <cstddef>
#include <map>
#include <mutex>

namespace mpigrad {

// Blocks lie in one reserved address range, placed first fit at the lowest address, with neighbours merged: blocks return to the
// same addresses when shapes repeat. Holes between blocks keep their pages as long as the total is hardly more than the peak of
// bytes in use; excess pages are released from the holes, the highest first. The memory of a process is therefore what its
// tensors need, in whatever order they are allocated and released. May be called from any thread.
class HostPool {
 public:
  explicit HostPool(std::size_t range);  // bytes of addresses; if 0 or not available, everything comes from malloc
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // At least 64-byte aligned, elements undefined. Small blocks come from malloc. Error: out of memory.
  std::byte* allocate(std::size_t bytes);
  void release(std::byte* data);

  // Bytes of the range: in use now, the peak, and an upper bound of those that have pages.
  struct Use {
    std::size_t used = 0, most = 0, resident = 0;
  };
  Use use() const;

 private:
  using Blocks = std::map<std::size_t, std::size_t>;  // from offset to length
  void touch(std::size_t offset, std::size_t length);
  void give_back(std::size_t excess);

  mutable std::mutex mutex_;
  void* range_ = nullptr;
  std::size_t reserved_ = 0;
  std::byte* base_ = nullptr;  // within the range, at a large page
  std::size_t size_ = 0;
  Blocks free_, used_;
  Blocks untouched_;  // without pages; parts of free blocks
  Use use_;
};

}  // namespace mpigrad
