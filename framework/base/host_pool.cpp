#include "framework/base/host_pool.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "framework/base/error.h"
#include "framework/base/host_memory.h"

namespace mpigrad {
namespace {

constexpr std::size_t granule = 4096;
constexpr std::size_t smallest_pooled = 64 * 1024;  // smaller blocks come from malloc
// Allowed bytes of pages beyond the peak in use: the larger of the peak divided by `tolerated_part` and `tolerated_bytes`.
// Releasing less does not pay for the fresh pages needed later.
constexpr std::size_t tolerated_part = 256, tolerated_bytes = 16 << 20;
// The size of large pages of the system.
constexpr std::size_t large_page = 2 << 20;

// A block of malloc, aligned here: aligned_alloc() does not keep small blocks for the next call, and takes a third of a call with
// tiny tensors. The address for free() is in front of the block.
std::byte* plain(std::size_t bytes) {
  constexpr std::size_t alignment = 64, room = alignment + sizeof(void*);
  void* whole = bytes <= SIZE_MAX - room ? std::malloc(bytes + room) : nullptr;
  if (!whole) {
    constexpr double gib = 0x1p30;
    const auto available = static_cast<double>(available_host_bytes()), asked = static_cast<double>(bytes);
    fail("[storage] out of memory: a tensor takes {} bytes ({:.2f} GiB), {:.0f} ({:.2f} GiB) are available", bytes, asked / gib,
         available, available / gib);
  }
  const auto past = reinterpret_cast<std::uintptr_t>(whole) + room;
  auto* data = static_cast<std::byte*>(whole) + room - past % alignment;
  std::memcpy(data - sizeof(void*), &whole, sizeof(void*));
  return data;
}
void release_plain(std::byte* data) {
  if (!data) return;
  void* whole = nullptr;
  std::memcpy(&whole, data - sizeof(void*), sizeof(void*));
  std::free(whole);
}

// Adds [offset, offset + length) to blocks that it does not overlap, and joins neighbours.
void insert(std::map<std::size_t, std::size_t>& blocks, std::size_t offset, std::size_t length) {
  auto next = blocks.lower_bound(offset);
  if (next != blocks.end() && next->first == offset + length) length += next->second, next = blocks.erase(next);
  if (next != blocks.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += length;
      return;
    }
  }
  blocks.emplace_hint(next, offset, length);
}

}  // namespace

HostPool::HostPool(std::size_t range) {
  // Under a limit on data (RLIMIT_DATA) all addresses of a range count, used or not.
  rlimit data{};
  if (range == 0 || (getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur != RLIM_INFINITY)) return;
  reserved_ = range + large_page;
  range_ = mmap(nullptr, reserved_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range_ == MAP_FAILED) {  // a limit on address space
    range_ = nullptr;
    return;
  }
  // The system does not align the range; with an unaligned base, releasing the ends of blocks would break up large pages.
  const auto address = reinterpret_cast<std::uintptr_t>(range_);
  base_ = static_cast<std::byte*>(range_) + (large_page - address % large_page) % large_page, size_ = range;
  madvise(base_, size_, MADV_HUGEPAGE);
  free_[0] = size_, untouched_[0] = size_;
}

HostPool::~HostPool() {
  if (range_) munmap(range_, reserved_);
}

std::byte* HostPool::allocate(std::size_t bytes) {
  if (bytes < smallest_pooled) return plain(bytes);
  const auto length = (bytes + granule - 1) / granule * granule;
  {
    std::lock_guard lock(mutex_);
    const auto fits = [&](const auto& block) { return block.second >= length; };
    if (const auto hole = std::find_if(free_.begin(), free_.end(), fits); hole != free_.end()) {
      const auto [offset, whole] = *hole;
      free_.erase(hole);
      if (whole > length) free_[offset + length] = whole - length;
      used_[offset] = length;
      use_.used += length, use_.most = std::max(use_.most, use_.used);
      touch(offset, length);
      const auto allowed = use_.most + std::max(use_.most / tolerated_part, tolerated_bytes);
      if (use_.resident > allowed) give_back(use_.resident - allowed);
      return base_ + offset;
    }
  }
  return plain(bytes);
}

void HostPool::release(std::byte* data) {
  if (base_ == nullptr || data < base_ || data >= base_ + size_) return release_plain(data);
  std::lock_guard lock(mutex_);
  const auto block = used_.find(static_cast<std::size_t>(data - base_));
  use_.used -= block->second;
  insert(free_, block->first, block->second);
  used_.erase(block);
}

HostPool::Use HostPool::use() const {
  std::lock_guard lock(mutex_);
  return use_;
}

// Notes that the block will have pages.
void HostPool::touch(std::size_t offset, std::size_t length) {
  const auto end = offset + length;
  auto part = untouched_.upper_bound(offset);
  if (part != untouched_.begin()) --part;
  while (part != untouched_.end() && part->first < end) {
    const auto [first, whole] = *part;
    const auto last = first + whole;
    if (last <= offset) {
      ++part;
      continue;
    }
    part = untouched_.erase(part);
    use_.resident += std::min(last, end) - std::max(first, offset);
    if (first < offset) untouched_[first] = offset - first;
    if (last > end) untouched_[end] = last - end;
  }
}

// Releases pages from the ends of the highest holes, in whole large pages: breaking one up costs more than it frees.
void HostPool::give_back(std::size_t excess) {
  const auto up = [](std::size_t at) { return (at + large_page - 1) / large_page * large_page; };
  const auto down = [](std::size_t at) { return at / large_page * large_page; };
  for (auto hole = free_.rbegin(); hole != free_.rend() && excess > 0; ++hole) {
    const auto first = up(hole->first);
    auto last = down(hole->first + hole->second);
    while (first < last && excess > 0) {
      // The part without pages before or around `last`.
      const auto bare = untouched_.lower_bound(last);
      const bool any = bare != untouched_.begin();
      const auto bare_end = any ? std::prev(bare)->first + std::prev(bare)->second : 0;
      if (any && bare_end >= last) {
        last = down(std::prev(bare)->first);
        continue;
      }
      const auto lower = std::max(first, up(bare_end));
      if (lower >= last) {  // less than a large page
        last = down(bare_end);
        continue;
      }
      const auto from = std::max(lower, last - std::min(last - lower, up(excess)));
      if (madvise(base_ + from, last - from, MADV_DONTNEED) != 0) return;  // locked memory cannot be released
      insert(untouched_, from, last - from);
      use_.resident -= last - from;
      excess -= std::min(excess, last - from);
      last = from;
    }
  }
}

}  // namespace mpigrad
