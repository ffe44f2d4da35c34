#pragma once
// The policy of the caching allocator, independent of a GPU: blocks are cut from segments of a driver, merged with free
// neighbours when they are released, and the smallest free block that fits is taken, at the lowest address among equals. A
// program that repeats its shapes therefore gets the same addresses again from the second repetition on, without calls of the
// driver.
//
// Work that is captured once and repeated with the same addresses has its own pool: other work gets no memory from it while the
// pool exists, and memory outside the pool that the work reads is not reused.

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
  std::int64_t retries = 0;                      // allocations that first had to return free segments to the driver
  std::int64_t pools = 0;                        // bytes of segments that belong to pools
  // The fraction of the free memory outside of the largest free block. Near 1 the free memory is useless for large requests.
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
  static constexpr std::int64_t small_limit = 1 << 20;  // requests up to this size share small segments
  static constexpr std::int64_t small_segment = 2 << 20;
  static constexpr std::int64_t large_segment = 32 << 20;  // the smallest segment for larger requests
  static constexpr std::int64_t large_granule = 2 << 20;   // larger segments are multiples of this

  explicit CachingAllocator(Driver driver) : driver_(std::move(driver)) {}
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;
  // Does not release segments: at the end of a process the driver is destroyed before this object.
  ~CachingAllocator() = default;

  // At least `bytes`, aligned to `granule`; a distinct block also for 0 bytes. Null if the driver has no memory even after all
  // free segments were released.
  void* allocate(std::int64_t bytes);
  // Returns false if the block is not in use here.
  bool release(void* block);
  bool owns(void* block) const;
  // Releases unused segments to the driver, except those of pools; returns their bytes.
  std::int64_t trim();

  // Until close_pool() blocks come from a new pool, which takes over all unused segments. Other memory that is released meanwhile
  // stays in use until drop_pool().
  int open_pool();
  // The pool keeps the segments that blocks were taken from; the others leave the pool.
  void close_pool();
  // Returns the memory of a pool to general use.
  void drop_pool(int pool);

  AllocatorStatistics statistics() const;
  void reset_peak();

 private:
  struct Block {
    std::int64_t bytes = 0;
    std::byte* segment = nullptr;  // its first byte
    bool used = false, small = false;
    int pool = 0;  // 0: general use
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
  std::map<int, std::vector<std::byte*>> parked_;  // blocks released while the pool was open; its work may read them
  AllocatorStatistics statistics_;
};

}  // namespace mpigrad::cuda
