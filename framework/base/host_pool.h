#pragma once
// Large blocks of host memory. Fresh pages cost about as much as a pass over the data, so that blocks are not given back to the
// system between steps.

#include <cstddef>
#include <map>
#include <mutex>

namespace mpigrad {

// They live in one reserved address range, first fit at the lowest address with neighbours merged: blocks return to the same
// addresses when shapes repeat. Holes between blocks keep their pages as long as all pages together are hardly more than the most
// bytes that were in use at one time; what is more is taken from the holes, the highest first. So the memory of a process is what
// its tensors need, whatever the order in which they come and go. Any thread.
class HostPool {
 public:
  explicit HostPool(std::size_t range);  // bytes of addresses; 0, or more than there are: everything is malloc's
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // At least 64-byte aligned, elements undefined. Small ones are malloc's. An Error if there is no memory.
  std::byte* allocate(std::size_t bytes);
  void release(std::byte* data);

  // Of the range, in bytes: in use now, the most so far, with pages (at most).
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
