#pragma once
// The policy of the caching allocator, without a GPU: blocks are cut from segments that a driver hands out, given back to their
// neighbours when they are released, and the smallest free block that fits is taken, the lowest address among equals. A program
// that repeats its shapes therefore gets the same addresses again from the second repetition on, and asks the driver for nothing.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace mpigrad::cuda {

struct AllocatorStatistics {
  std::int64_t current = 0, peak = 0;            // bytes in use, rounded up to whole blocks
  std::int64_t reserved = 0, peak_reserved = 0;  // bytes of all segments
  std::int64_t largest_free = 0;                 // bytes of the largest free block
  std::int64_t allocations = 0;                  // calls of allocate() that were served
  std::int64_t segments_requested = 0;           // calls of the driver that were served
  std::int64_t retries = 0;                      // times that free segments had to go back to the driver first
  // The part of the free memory that is not in the largest free block: 0 is none, towards 1 it is useless for large requests.
  double fragmentation() const;
};
// "in use 1.0 GiB (peak 2.0 GiB), reserved 3.0 GiB, largest free block 0.5 GiB, fragmentation 0.25, 3 retries"
std::string to_string(const AllocatorStatistics& statistics);

class CachingAllocator {
 public:
  // The driver's `allocate` returns null when there is no memory left.
  struct Driver {
    std::function<void*(std::int64_t bytes)> allocate;
    std::function<void(void* segment)> release;
  };
  static constexpr std::int64_t granule = 512;          // alignment and smallest difference between sizes
  static constexpr std::int64_t small_limit = 1 << 20;  // requests up to this share segments of their own
  static constexpr std::int64_t small_segment = 2 << 20;
  static constexpr std::int64_t large_segment = 32 << 20;  // the least that is asked for otherwise
  static constexpr std::int64_t large_granule = 2 << 20;   // larger segments are multiples of this

  explicit CachingAllocator(Driver driver) : driver_(std::move(driver)) {}
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;
  // Does not return segments: at the end of a process the driver is gone before this is.
  ~CachingAllocator() = default;

  // At least `bytes`, aligned to `granule`; a block of its own also for 0. Null when the driver has no memory even after all
  // free segments went back to it.
  void* allocate(std::int64_t bytes);
  // False if the block is not in use here.
  bool release(void* block);
  bool owns(void* block) const;
  // Gives segments in which nothing is used back to the driver; their bytes.
  std::int64_t trim();

  AllocatorStatistics statistics() const;
  void reset_peak();

 private:
  struct Block {
    std::int64_t bytes = 0;
    std::byte* segment = nullptr;  // its first byte
    bool used = false, small = false;
  };
  using Blocks = std::map<std::byte*, Block>;
  using FreeKey = std::pair<std::int64_t, std::byte*>;

  std::set<FreeKey>& free_blocks(bool small) { return free_[small ? 1 : 0]; }
  Blocks::iterator find(std::int64_t bytes, bool small);
  bool grow(std::int64_t bytes, bool small);
  std::int64_t trim_locked();

  Driver driver_;
  mutable std::mutex mutex_;
  Blocks blocks_;              // all, by address; neighbours of one segment touch
  std::set<FreeKey> free_[2];  // of large and of small segments
  std::map<std::byte*, std::int64_t> segments_;
  AllocatorStatistics statistics_;
};

}  // namespace mpigrad::cuda
