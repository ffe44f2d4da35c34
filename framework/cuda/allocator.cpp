#include "framework/cuda/allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace mpigrad::cuda {
namespace {

constexpr std::int64_t rounded_up(std::int64_t bytes, std::int64_t unit) { return (bytes + unit - 1) / unit * unit; }

std::string gibibytes(std::int64_t bytes) { return fmt::format("{:.3f} GiB", static_cast<double>(bytes) / (1 << 30)); }

}  // namespace

double AllocatorStatistics::fragmentation() const {
  const auto idle = reserved - current;
  return idle > 0 ? 1 - static_cast<double>(largest_free) / static_cast<double>(idle) : 0;
}

std::string to_string(const AllocatorStatistics& s) {
  auto text = fmt::format("in use {} (peak {}), reserved {}, largest free block {}, fragmentation {:.2f}, {} retries",
                          gibibytes(s.current), gibibytes(s.peak), gibibytes(s.reserved), gibibytes(s.largest_free),
                          s.fragmentation(), s.retries);
  if (s.pools > 0) text += fmt::format(", {} kept for captured steps", gibibytes(s.pools));
  return text;
}

CachingAllocator::Blocks::iterator CachingAllocator::find(std::int64_t bytes, bool small) {
  auto& free = free_[{open_, small}];
  const auto fits = free.lower_bound({bytes, nullptr});
  return fits == free.end() ? blocks_.end() : blocks_.find(fits->second);
}

bool CachingAllocator::grow(std::int64_t bytes, bool small) {
  const auto wanted = small ? small_segment : bytes <= large_segment ? large_segment : rounded_up(bytes, large_granule);
  auto size = wanted;
  void* segment = driver_.allocate(size);
  // A capture must not wait for the GPU, which releasing memory does.
  if (!segment && open_ == 0 && trim_locked() > 0) {
    ++statistics_.retries;
    segment = driver_.allocate(size);
  }
  if (!segment && bytes < size) segment = driver_.allocate(size = bytes);  // try the smallest sufficient size
  if (!segment) return false;
  auto* first = static_cast<std::byte*>(segment);
  segments_[first] = {.bytes = size};
  const Block whole{.bytes = size, .segment = first, .used = false, .small = small, .pool = open_};
  blocks_[first] = whole;
  free_blocks(whole).insert({size, first});
  if (open_ != 0) statistics_.pools += size;
  statistics_.reserved += size;
  statistics_.peak_reserved = std::max(statistics_.peak_reserved, statistics_.reserved);
  ++statistics_.segments_requested;
  return true;
}

void* CachingAllocator::allocate(std::int64_t bytes) {
  std::lock_guard lock(mutex_);
  const bool small = bytes <= small_limit;
  bytes = rounded_up(std::max<std::int64_t>(bytes, 1), granule);
  auto block = find(bytes, small);
  if (block == blocks_.end()) {
    if (!grow(bytes, small)) return nullptr;
    block = find(bytes, small);
  }
  auto& [address, state] = *block;
  free_blocks(state).erase({state.bytes, address});
  if (state.bytes > bytes) {
    auto* rest = address + bytes;
    auto& behind = blocks_[rest] = state;
    behind.bytes = state.bytes - bytes;
    free_blocks(behind).insert({behind.bytes, rest});
    state.bytes = bytes;
  }
  segments_[state.segment].touched = true;
  state.used = true;
  statistics_.current += bytes;
  statistics_.peak = std::max(statistics_.peak, statistics_.current);
  ++statistics_.allocations;
  return address;
}

bool CachingAllocator::release(void* memory) {
  std::lock_guard lock(mutex_);
  auto block = blocks_.find(static_cast<std::byte*>(memory));
  if (block == blocks_.end() || !block->second.used) return false;
  if (open_ == 0 || block->second.pool == open_) release_locked(block);
  else parked_[open_].push_back(block->first);
  return true;
}

void CachingAllocator::release_locked(Blocks::iterator block) {
  auto& free = free_blocks(block->second);
  statistics_.current -= block->second.bytes;
  block->second.used = false;
  const auto swallow_next = [&](Blocks::iterator at) {
    const auto next = std::next(at);
    if (next == blocks_.end() || next->second.used || next->second.segment != at->second.segment) return;
    free.erase({next->second.bytes, next->first});
    at->second.bytes += next->second.bytes;
    blocks_.erase(next);
  };
  swallow_next(block);
  if (block != blocks_.begin()) {
    const auto before = std::prev(block);
    if (!before->second.used && before->second.segment == block->second.segment) {
      free.erase({before->second.bytes, before->first});
      swallow_next(before);
      block = before;
    }
  }
  free.insert({block->second.bytes, block->first});
}

bool CachingAllocator::owns(void* memory) const {
  std::lock_guard lock(mutex_);
  const auto block = blocks_.find(static_cast<std::byte*>(memory));
  return block != blocks_.end() && block->second.used;
}

std::int64_t CachingAllocator::trim_locked() {
  std::int64_t bytes = 0;
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto block = blocks_.find(segment->first);
    if (block->second.used || block->second.bytes != segment->second.bytes || block->second.pool != 0) {
      ++segment;
      continue;
    }
    free_blocks(block->second).erase({block->second.bytes, block->first});
    blocks_.erase(block);
    driver_.release(segment->first);
    bytes += segment->second.bytes;
    segment = segments_.erase(segment);
  }
  statistics_.reserved -= bytes;
  return bytes;
}

std::int64_t CachingAllocator::trim() {
  std::lock_guard lock(mutex_);
  return trim_locked();
}

// The blocks of a segment are contiguous, so they follow one another in the map.
void CachingAllocator::move_segment(std::byte* first, int to) {
  const auto bytes = segments_[first].bytes;
  auto block = blocks_.find(first);
  if ((block->second.pool == 0) != (to == 0)) statistics_.pools += to == 0 ? -bytes : bytes;
  for (; block != blocks_.end() && block->second.segment == first; ++block) {
    auto& state = block->second;
    if (!state.used) free_blocks(state).erase({state.bytes, block->first});
    state.pool = to;
    if (!state.used) free_blocks(state).insert({state.bytes, block->first});
  }
}

int CachingAllocator::open_pool() {
  std::lock_guard lock(mutex_);
  open_ = ++last_pool_;
  for (auto& [first, segment] : segments_) {
    const auto& block = blocks_[first];
    if (block.used || block.pool != 0 || block.bytes != segment.bytes) continue;
    segment.touched = false;
    move_segment(first, open_);
  }
  return open_;
}

void CachingAllocator::close_pool() {
  std::lock_guard lock(mutex_);
  for (const auto& [first, segment] : segments_)
    if (blocks_[first].pool == open_ && !segment.touched) move_segment(first, 0);
  open_ = 0;
}

void CachingAllocator::drop_pool(int pool) {
  std::lock_guard lock(mutex_);
  for (const auto& [first, segment] : segments_)
    if (blocks_[first].pool == pool) move_segment(first, 0);
  for (auto* block : parked_[pool]) release_locked(blocks_.find(block));
  parked_.erase(pool);
  std::erase_if(free_, [&](const auto& each) { return each.first.first == pool; });
}

AllocatorStatistics CachingAllocator::statistics() const {
  std::lock_guard lock(mutex_);
  auto result = statistics_;
  for (const auto& [pool, free] : free_)
    if (!free.empty()) result.largest_free = std::max(result.largest_free, free.rbegin()->first);
  return result;
}

void CachingAllocator::reset_peak() {
  std::lock_guard lock(mutex_);
  statistics_.peak = statistics_.current;
  statistics_.peak_reserved = statistics_.reserved;
}

}  // namespace mpigrad::cuda
