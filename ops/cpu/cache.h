#pragma once
// A map from problems to what was built for them (primitives), shared by all threads of the process.

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace mpigrad::cpu {

// Numbers that identify a problem, padded with zeros.
using CacheKey = std::array<std::int64_t, 32>;

template <class Value>
class Cache {
 public:
  // The value stays alive as long as the caller holds it, also if the cache drops it meanwhile.
  template <class Make>
  std::shared_ptr<const Value> find(const CacheKey& key, Make&& make) {
    const std::lock_guard lock(mutex_);
    if (const auto found = values_.find(key); found != values_.end()) return found->second;
    if (values_.size() >= most) values_.clear();
    return values_.emplace(key, std::make_shared<const Value>(make())).first->second;
  }

 private:
  static constexpr std::size_t most = 2048;
  struct Hash {
    std::size_t operator()(const CacheKey& key) const {
      std::uint64_t h = 0x9e3779b97f4a7c15;
      for (const auto k : key) h = (h ^ static_cast<std::uint64_t>(k)) * 0xff51afd7ed558ccd, h ^= h >> 32;
      return static_cast<std::size_t>(h);
    }
  };
  std::mutex mutex_;
  std::unordered_map<CacheKey, std::shared_ptr<const Value>, Hash> values_;
};

}  // namespace mpigrad::cpu
