#pragma once
// Cache of the plans chosen and built for problems; drops the least recently used. For one thread.

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>

namespace mpigrad::ops {

template <class Key, class Value, class Hash>
class PlanCache {
 public:
  explicit PlanCache(std::size_t most = 1024) : most_(most) {}

  // The value stays alive as long as the caller holds it, also if the cache drops it. If `make` throws, the cache is unchanged.
  template <class Make>
  std::shared_ptr<const Value> find(const Key& key, Make&& make) {
    if (const auto found = places_.find(key); found != places_.end()) {
      ++hits_;
      recent_.splice(recent_.begin(), recent_, found->second);
      return found->second->second;
    }
    auto value = std::make_shared<const Value>(make());
    ++misses_;
    while (!recent_.empty() && recent_.size() >= most_) {
      places_.erase(recent_.back().first);
      recent_.pop_back();
    }
    recent_.emplace_front(key, value);
    places_.emplace(key, recent_.begin());
    return value;
  }

  std::size_t size() const { return recent_.size(); }
  std::int64_t hits() const { return hits_; }
  std::int64_t misses() const { return misses_; }

 private:
  using Entries = std::list<std::pair<Key, std::shared_ptr<const Value>>>;
  std::size_t most_;
  Entries recent_;  // most recently used first
  std::unordered_map<Key, typename Entries::iterator, Hash> places_;
  std::int64_t hits_ = 0, misses_ = 0;
};

}  // namespace mpigrad::ops
