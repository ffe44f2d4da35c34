#pragma once
// The policy of the caching allocator, without a GPU: blocks are cut from segments that a driver hands out, given back to their
// neighbours when they are released, and the smallest free block that fits is taken, the lowest address among equals. A program
// that repeats its shapes therefore gets the same addresses again from the second repetition on, and asks the driver for nothing.
//
// Work that is captured once and repeated with the same addresses has a pool of its own: nobody else is given memory from there
// while it lives, and what it read of others' memory stays theirs.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace mpigrad::cuda {

struct AllocatorStatistics {
  std::int64_t current = 0, peak = 0;            // bytes in use, rounded up to whole blocks
  std::int64_t reserved = 0, peak_reserved = 0;  // bytes of all segments
  std::int64_t largest_free = 0;                 // bytes of the largest free block
  std::int64_t allocations = 0;                  // calls of allocate() that were served
  std::int64_t segments_requested = 0;           // calls of the driver that were served
  std::int64_t retries = 0;                      // times that free segments had to go back to the driver first
  std::int64_t pools = 0;                        // bytes of segments that belong to pools
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
  // Gives segments in which nothing is used back to the driver, those of pools excepted; their bytes.
  std::int64_t trim();

  // From here to close_pool() blocks come from a new pool, which takes along all segments in which nothing is used, and what is
  // released of other memory stays in use until the pool is gone.
  int open_pool();
  // The pool keeps what blocks were taken from meanwhile; the rest goes back.
  void close_pool();
  // Its memory is anybody's again.
  void drop_pool(int pool);

  AllocatorStatistics statistics() const;
  void reset_peak();

 private:
  struct Block {
    std::int64_t bytes = 0;
    std::byte* segment = nullptr;  // its first byte
    bool used = false, small = false;
    int pool = 0;  // 0 is everybody's
  };
  struct Segment {
    std::int64_t bytes = 0;
    bool touched = false;  // blocks were taken from it since its pool was opened
  };
  using Blocks = std::map<std::byte*, Block>;
  using FreeKey = std::pair<std::int64_t, std::byte*>;

  std::set<FreeKey>& free_blocks(const Block& block) { return free_[{block.pool, block.small}]; }
  void release_locked(Blocks::iterator block);
  void move_segment(std::byte* first, int to);
  Blocks::iterator find(std::int64_t bytes, bool small);
  bool grow(std::int64_t bytes, bool small);
  std::int64_t trim_locked();

  Driver driver_;
  mutable std::mutex mutex_;
  Blocks blocks_;                                           // all, by address; neighbours of one segment touch
  std::map<std::pair<int, bool>, std::set<FreeKey>> free_;  // by pool, of large and of small segments
  std::map<std::byte*, Segment> segments_;
  int open_ = 0, last_pool_ = 0;
  std::map<int, std::vector<std::byte*>> parked_;  // released while the pool was open, which may read them
  AllocatorStatistics statistics_;
};

}  // namespace mpigrad::cuda
