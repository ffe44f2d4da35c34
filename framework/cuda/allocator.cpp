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
  return fmt::format("in use {} (peak {}), reserved {}, largest free block {}, fragmentation {:.2f}, {} retries",
                     gibibytes(s.current), gibibytes(s.peak), gibibytes(s.reserved), gibibytes(s.largest_free), s.fragmentation(),
                     s.retries);
}

CachingAllocator::Blocks::iterator CachingAllocator::find(std::int64_t bytes, bool small) {
  auto& free = free_blocks(small);
  const auto fits = free.lower_bound({bytes, nullptr});
  return fits == free.end() ? blocks_.end() : blocks_.find(fits->second);
}

bool CachingAllocator::grow(std::int64_t bytes, bool small) {
  const auto wanted = small ? small_segment : bytes <= large_segment ? large_segment : rounded_up(bytes, large_granule);
  auto size = wanted;
  void* segment = driver_.allocate(size);
  if (!segment && trim_locked() > 0) {
    ++statistics_.retries;
    segment = driver_.allocate(size);
  }
  if (!segment && bytes < size) segment = driver_.allocate(size = bytes);  // the last that is there
  if (!segment) return false;
  auto* first = static_cast<std::byte*>(segment);
  segments_[first] = size;
  blocks_[first] = {.bytes = size, .segment = first, .used = false, .small = small};
  free_blocks(small).insert({size, first});
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
  free_blocks(small).erase({state.bytes, address});
  if (state.bytes > bytes) {
    auto* rest = address + bytes;
    blocks_[rest] = {.bytes = state.bytes - bytes, .segment = state.segment, .used = false, .small = small};
    free_blocks(small).insert({state.bytes - bytes, rest});
    state.bytes = bytes;
  }
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
  auto& free = free_blocks(block->second.small);
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
  return true;
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
    if (block->second.used || block->second.bytes != segment->second) {
      ++segment;
      continue;
    }
    free_blocks(block->second.small).erase({block->second.bytes, block->first});
    blocks_.erase(block);
    driver_.release(segment->first);
    bytes += segment->second;
    segment = segments_.erase(segment);
  }
  statistics_.reserved -= bytes;
  return bytes;
}

std::int64_t CachingAllocator::trim() {
  std::lock_guard lock(mutex_);
  return trim_locked();
}

AllocatorStatistics CachingAllocator::statistics() const {
  std::lock_guard lock(mutex_);
  auto result = statistics_;
  for (const auto& free : free_)
    if (!free.empty()) result.largest_free = std::max(result.largest_free, free.rbegin()->first);
  return result;
}

void CachingAllocator::reset_peak() {
  std::lock_guard lock(mutex_);
  statistics_.peak = statistics_.current;
  statistics_.peak_reserved = statistics_.reserved;
}

}  // namespace mpigrad::cuda
