#pragma once
// Primitives built for problems, shared by all threads of the process.

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>

#include "ops/kernel/plan_cache.h"

namespace mpigrad::cpu {

// Numbers that identify a problem, padded with zeros.
using CacheKey = std::array<std::int64_t, 32>;

struct CacheKeyHash {
  std::size_t operator()(const CacheKey& key) const {
    std::uint64_t h = 0x9e3779b97f4a7c15;
    for (const auto k : key) h = (h ^ static_cast<std::uint64_t>(k)) * 0xff51afd7ed558ccd, h ^= h >> 32;
    return static_cast<std::size_t>(h);
  }
};

template <class Value>
class Cache {
 public:
  // As in PlanCache.
  template <class Make>
  std::shared_ptr<const Value> find(const CacheKey& key, Make&& make) {
    const std::lock_guard lock(mutex_);
    return plans_.find(key, make);
  }

 private:
  std::mutex mutex_;
  ops::PlanCache<CacheKey, Value, CacheKeyHash> plans_{2048};
};

}  // namespace mpigrad::cpu
