// The policy of the GPU's caching allocator, on a simulated driver.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "framework/cuda/allocator.h"
#include "framework/cuda/cuda.h"
#include "framework/engine/op.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/to_device.h"

using namespace mpigrad;
using cuda::CachingAllocator;

namespace {

// A driver that returns segments at addresses far apart, up to a limit in bytes.
struct Driver {
  explicit Driver(std::int64_t bytes) : limit(bytes) {}

  std::int64_t limit, used = 0, calls = 0;
  std::map<std::byte*, std::int64_t> segments;
  std::uintptr_t next = std::uintptr_t{1} << 40;

  CachingAllocator::Driver callbacks() {
    return {.allocate = [this](std::int64_t bytes) -> void* {
              if (used + bytes > limit) return nullptr;
              ++calls;
              auto* segment = reinterpret_cast<std::byte*>(next);
              next += static_cast<std::uintptr_t>(bytes);  // adjacent: blocks of two segments must not merge
              segments[segment] = bytes;
              used += bytes;
              return segment;
            },
            .release =
                [this](void* segment) {
                  const auto found = segments.find(static_cast<std::byte*>(segment));
                  REQUIRE(found != segments.end());
                  used -= found->second;
                  segments.erase(found);
                }};
  }
  bool holds(const void* block, std::int64_t bytes) const {
    const auto* begin = static_cast<const std::byte*>(block);
    for (const auto& [segment, size] : segments)
      if (segment <= begin && begin + bytes <= segment + size) return true;
    return false;
  }
};

constexpr std::int64_t mebi = 1 << 20;

std::int64_t rounded(std::int64_t bytes) {
  const auto granule = CachingAllocator::granule;
  return (std::max<std::int64_t>(bytes, 1) + granule - 1) / granule * granule;
}

}  // namespace

TEST_CASE("cuda allocator: blocks of a random workload lie in segments and do not overlap") {
  Driver driver(std::int64_t{1} << 40);
  CachingAllocator allocator(driver.callbacks());
  std::mt19937_64 random(1);
  std::map<std::byte*, std::int64_t> live;
  std::int64_t current = 0, peak = 0;
  for (int step = 0; step < 20000; ++step) {
    const bool take = live.empty() || random() % 100 < (step / 2000 % 2 ? 40 : 60);
    if (take) {
      const auto bytes = static_cast<std::int64_t>(random() % (std::uint64_t{1} << (random() % 28)));
      auto* block = static_cast<std::byte*>(allocator.allocate(bytes));
      REQUIRE(block);
      REQUIRE(reinterpret_cast<std::uintptr_t>(block) % CachingAllocator::granule == 0);
      const auto size = rounded(bytes);
      REQUIRE(driver.holds(block, size));
      const auto after = live.lower_bound(block);
      if (after != live.end()) REQUIRE(block + size <= after->first);
      if (after != live.begin()) REQUIRE(std::prev(after)->first + std::prev(after)->second <= block);
      live[block] = size;
      current += size;
      peak = std::max(peak, current);
    } else {
      auto victim = live.begin();
      std::advance(victim, static_cast<std::ptrdiff_t>(random() % live.size()));
      REQUIRE(allocator.owns(victim->first));
      REQUIRE(allocator.release(victim->first));
      REQUIRE_FALSE(allocator.owns(victim->first));
      current -= victim->second;
      live.erase(victim);
    }
    const auto statistics = allocator.statistics();
    REQUIRE(statistics.current == current);
    REQUIRE(statistics.peak == peak);
    REQUIRE(statistics.reserved == driver.used);
  }
  for (const auto& [block, size] : live) REQUIRE(allocator.release(block));
  // After all neighbours have merged, every segment is one free block, so that all segments are returned.
  const auto before = allocator.statistics();
  CHECK(before.current == 0);
  CHECK(allocator.trim() == before.reserved);
  CHECK(driver.segments.empty());
  CHECK(allocator.statistics().reserved == 0);
  CHECK(allocator.statistics().largest_free == 0);
}

TEST_CASE("cuda allocator: repeated shapes get the same addresses and no new segments") {
  Driver driver(std::int64_t{1} << 40);
  CachingAllocator allocator(driver.callbacks());
  std::vector<void*> parameters;
  for (const std::int64_t bytes : {4000, 3 * 1000 * 1000, 700, 64 * 1000 * 1000}) parameters.push_back(allocator.allocate(bytes));
  // One step: activations, released in reverse order while cotangents come and go, as in a replay.
  const auto step = [&] {
    std::vector<void*> addresses, activations;
    const auto take = [&](std::int64_t bytes) {
      addresses.push_back(allocator.allocate(bytes));
      return addresses.back();
    };
    for (std::int64_t layer = 0; layer < 12; ++layer) activations.push_back(take((80 * mebi) >> layer));
    void* cotangent = take(4);
    for (std::int64_t layer = 12; layer-- > 0;) {
      void* before = take((80 * mebi) >> layer);
      void* workspace = take(5 * mebi + layer * 1000);
      allocator.release(cotangent);
      allocator.release(activations[static_cast<std::size_t>(layer)]);
      allocator.release(workspace);
      cotangent = before;
    }
    allocator.release(cotangent);
    return addresses;
  };
  step();
  const auto second = step();
  const auto calls = driver.calls;
  for (int i = 0; i < 3; ++i) CHECK(step() == second);
  CHECK(driver.calls == calls);
}

TEST_CASE("cuda allocator: the smallest block that fits is taken, the lowest among equals, and neighbours merge") {
  Driver driver(std::int64_t{1} << 40);
  CachingAllocator allocator(driver.callbacks());
  auto* a = static_cast<std::byte*>(allocator.allocate(4 * mebi));
  auto* b = static_cast<std::byte*>(allocator.allocate(2 * mebi));
  auto* c = static_cast<std::byte*>(allocator.allocate(4 * mebi));
  auto* d = static_cast<std::byte*>(allocator.allocate(2 * mebi));
  auto* e = static_cast<std::byte*>(allocator.allocate(3 * mebi));
  CHECK(b == a + 4 * mebi);
  CHECK(driver.calls == 1);
  for (auto* block : {a, b, c}) REQUIRE(allocator.release(block));
  allocator.release(e);
  CHECK(allocator.allocate(10 * mebi) == a);  // a, b and c are one block again
  REQUIRE(allocator.release(a));
  CHECK(allocator.allocate(2 * mebi) == a);  // 10 MiB at a, 20 MiB after d: the smaller hole
  CHECK(allocator.allocate(16 * mebi) == d + 2 * mebi);
  CHECK(driver.calls == 1);
  CHECK_FALSE(allocator.release(a + 512));
  CHECK_FALSE(allocator.release(nullptr));
  CHECK(allocator.allocate(0) != allocator.allocate(0));
}

TEST_CASE("cuda allocator: what is free goes back to the driver before memory is said to be out") {
  Driver driver(100 * mebi);
  CachingAllocator allocator(driver.callbacks());
  void* large = allocator.allocate(60 * mebi);
  void* small = allocator.allocate(1000);
  REQUIRE(large);
  REQUIRE(allocator.release(large));
  CHECK(driver.used == 62 * mebi);
  // 90 MiB fit only without the cached 60 MiB; the small segment is in use and stays.
  void* larger = allocator.allocate(90 * mebi);
  REQUIRE(larger);
  CHECK(driver.used == 92 * mebi);
  CHECK(allocator.statistics().retries == 1);
  CHECK(allocator.owns(small));
  CHECK(allocator.allocate(9 * mebi) == nullptr);
  CHECK(allocator.allocate(7 * mebi) != nullptr);  // less than a usual segment is left: only this size
  CHECK(allocator.statistics().current == rounded(1000) + 97 * mebi);
  // A failed allocation leaves everything as it was.
  CHECK(allocator.allocate(200 * mebi) == nullptr);
  CHECK(allocator.release(larger));
  CHECK(allocator.allocate(90 * mebi) == larger);
}

TEST_CASE("cuda allocator: statistics tell fragmentation") {
  Driver driver(std::int64_t{1} << 40);
  CachingAllocator allocator(driver.callbacks());
  CHECK(allocator.statistics().fragmentation() == 0);
  std::vector<void*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(allocator.allocate(2 * mebi));
  CHECK(allocator.statistics().fragmentation() == 0);  // nothing is free
  for (std::size_t i = 0; i < 16; i += 2) allocator.release(blocks[i]);
  const auto statistics = allocator.statistics();
  CHECK(statistics.current == 16 * mebi);
  CHECK(statistics.reserved == 32 * mebi);
  CHECK(statistics.largest_free == 2 * mebi);
  CHECK(statistics.fragmentation() == doctest::Approx(1 - 2.0 / 16));
  CHECK(cuda::to_string(statistics).find("in use 0.016 GiB (peak 0.031 GiB), reserved 0.031 GiB") != std::string::npos);
  allocator.reset_peak();
  CHECK(allocator.statistics().peak == 16 * mebi);
}

TEST_CASE("cuda: without a GPU it is refused in one line, and queries answer") {
  if (cuda::available()) return;
  CHECK(cuda::devices() == 0);
  CHECK(cuda::unavailable().size() > 10);
  CHECK(cuda::unavailable().find('\n') == std::string::npos);
  CHECK_THROWS_WITH_AS(Tensor(TensorType{Shape{2}, DType::float32}, DeviceKind::cuda),
                       ("[storage] " + cuda::unavailable()).c_str(), Error);
  CHECK_THROWS_AS(cuda::select(0), Error);
  CHECK_THROWS_AS(to(ones(Shape{2}), DeviceKind::cuda), Error);
  CHECK(cuda::statistics().host_synchronisations == 0);
  CHECK(memory_statistics(DeviceKind::cuda).current_bytes == 0);
  UseDevice device(DeviceKind::cuda);
  CHECK_THROWS_AS(zeros(Shape{2}), Error);
  CHECK_THROWS_AS(arange(3), Error);
}

TEST_CASE("to: a tensor that is there is itself; the dry device has nothing to copy") {
  const auto x = ones(Shape{2});
  CHECK(to(x, DeviceKind::cpu).id() == x.id());
  CHECK_THROWS_WITH_AS(to(x, DeviceKind::dry), "[to] the dry device has no elements to copy: float32 [2]", Error);
  // The adjoint, with the CPU in the role of the other device.
  const auto y = from_vector(Shape{3}, {1, 2, 3}, DType::float64);
  Tape tape;
  const auto z = mpigrad::apply(ops::ToDevice{.device = DeviceKind::cpu}, {y});
  CHECK(z.id() != y.id());
  CHECK(z.raw() != y.raw());
  CHECK(z.to_vector() == y.to_vector());
  const auto g = from_vector(Shape{3}, {5, 7, 11}, DType::float64);
  CHECK(tape.vjp({z}, {g}, {y})[0].to_vector() == g.to_vector());
}

TEST_CASE("cuda allocator: a pool's memory is nobody else's") {
  Driver driver(std::int64_t{1} << 40);
  CachingAllocator allocator(driver.callbacks());
  void* kept = allocator.allocate(40 * mebi);  // a parameter, say
  void* warm = allocator.allocate(64 * mebi);
  void* idle = allocator.allocate(128 * mebi);
  CHECK(allocator.release(warm));
  CHECK(allocator.release(idle));
  const auto calls = driver.calls;

  const int pool = allocator.open_pool();
  void* a = allocator.allocate(64 * mebi);
  CHECK(a == warm);  // the unused block is in the pool, too
  CHECK(allocator.release(a));
  void* again = allocator.allocate(60 * mebi);
  CHECK(again == a);  // and is used again there
  CHECK(allocator.release(again));
  CHECK(allocator.release(kept));  // it was read, so it stays
  CHECK(allocator.statistics().current == 40 * mebi);
  allocator.close_pool();
  CHECK(driver.calls == calls);
  CHECK(allocator.statistics().pools == 64 * mebi);

  std::map<void*, std::int64_t> others;
  for (int i = 0; i < 4; ++i) {
    void* block = allocator.allocate(40 * mebi);
    CHECK(block != a);
    CHECK(block != kept);
    others[block] = 40 * mebi;
  }
  CHECK(others.contains(idle));  // no work in the pool used it: it was returned
  for (const auto& [block, bytes] : others) CHECK(allocator.release(block));
  CHECK(allocator.trim() > 0);
  CHECK(driver.holds(a, 64 * mebi));
  CHECK(driver.holds(kept, 40 * mebi));
  CHECK(to_string(allocator.statistics()).find("0.062 GiB kept for captured steps") != std::string::npos);

  allocator.drop_pool(pool);
  CHECK(allocator.statistics().current == 0);
  CHECK(allocator.statistics().pools == 0);
  CHECK(allocator.allocate(64 * mebi) == a);
  CHECK(allocator.allocate(40 * mebi) == kept);
}

TEST_CASE("cuda allocator: blocks of a pool may outlive it, and pools do not mix") {
  Driver driver(std::int64_t{1} << 40);
  CachingAllocator allocator(driver.callbacks());
  const int first = allocator.open_pool();
  void* small = allocator.allocate(100);
  void* large = allocator.allocate(40 * mebi);
  allocator.close_pool();
  const int second = allocator.open_pool();
  CHECK(allocator.allocate(100) != small);
  CHECK(allocator.release(large));  // large belongs to the first pool: neither pool may use it now
  CHECK(allocator.allocate(40 * mebi) != large);
  allocator.close_pool();
  allocator.drop_pool(first);
  CHECK(allocator.owns(small));
  CHECK(allocator.allocate(40 * mebi) != large);
  allocator.drop_pool(second);
  CHECK(allocator.release(small));
  CHECK(!allocator.owns(large));
  const auto before = driver.segments.size();
  CHECK(allocator.allocate(40 * mebi) != nullptr);
  CHECK(driver.segments.size() == before);
}

TEST_CASE("cuda allocator: a pool that finds no memory gives none back meanwhile") {
  Driver driver(100 * mebi);
  CachingAllocator allocator(driver.callbacks());
  void* part = allocator.allocate(20 * mebi);  // a part of a segment of 32, which is in use
  void* block = allocator.allocate(60 * mebi);
  CHECK(allocator.release(block));
  const int pool = allocator.open_pool();
  CHECK(allocator.allocate(80 * mebi) == nullptr);
  CHECK(driver.segments.size() == 2);
  CHECK(allocator.allocate(60 * mebi) == block);
  allocator.close_pool();
  allocator.drop_pool(pool);
  CHECK(allocator.release(part));
}
