// Blocks of host memory: they do not overlap, they are kept, and they have hardly more pages than were in use at one time.

#include "framework/base/host_pool.h"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstdint>
#include <vector>

#include "tests/support/distributed.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr std::size_t mebi = 1 << 20;

void fill(std::byte* data, std::size_t bytes, unsigned char value) { std::fill_n(data, bytes, static_cast<std::byte>(value)); }
bool is_filled(const std::byte* data, std::size_t bytes, unsigned char value) {
  return std::all_of(data, data + bytes, [&](std::byte b) { return b == static_cast<std::byte>(value); });
}

// Bytes of [data, data + bytes) that are resident.
std::size_t resident(std::byte* data, std::size_t bytes) {
  std::vector<unsigned char> pages(bytes / 4096);
  REQUIRE(mincore(data, bytes, pages.data()) == 0);
  return 4096 * static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; }));
}

}  // namespace

TEST_CASE("host pool: blocks return to the same addresses, small ones are malloc's") {
  HostPool pool(512 * mebi);
  auto* first = pool.allocate(3 * mebi);
  auto* second = pool.allocate(5 * mebi);
  CHECK(reinterpret_cast<std::uintptr_t>(first) % 64 == 0);
  pool.release(first);
  auto* again = pool.allocate(3 * mebi);
  CHECK(again == first);
  auto* small = pool.allocate(1000);
  CHECK(pool.use().used == 8 * mebi);
  for (auto* data : {second, again, small}) pool.release(data);
  CHECK(pool.use().used == 0);
  CHECK(pool.use().most == 8 * mebi);
  // More than the machine has, and an empty range.
  HostPool none(0);
  for (auto* p : {&pool, &none}) {
    auto* large = p->allocate(600 * mebi);
    CHECK(large != nullptr);
    p->release(large);
  }
}

TEST_CASE("host pool: pages of holes are given back when others are needed") {
  HostPool pool(1024 * mebi);
  auto* a = pool.allocate(64 * mebi);
  auto* b = pool.allocate(64 * mebi);
  fill(a, 64 * mebi, 1), fill(b, 64 * mebi, 2);
  pool.release(a);
  CHECK(resident(a, 64 * mebi) == 64 * mebi);  // kept for the next block of that size
  auto* c = pool.allocate(62 * mebi);
  CHECK(c == a);
  CHECK(c[5] == static_cast<std::byte>(1));
  pool.release(c);
  auto* d = pool.allocate(96 * mebi);  // after b
  fill(d, 96 * mebi, 3);
  CHECK(resident(a, 64 * mebi) <= (16 + 4) * mebi);
  CHECK(is_filled(b, 64 * mebi, 2));
  auto* e = pool.allocate(64 * mebi);
  CHECK(e == a);
  fill(e, 64 * mebi, 4);
  CHECK(is_filled(b, 64 * mebi, 2));
  CHECK(is_filled(d, 96 * mebi, 3));
  for (auto* data : {b, d, e}) pool.release(data);
}

TEST_CASE("host pool: blocks of any sizes in any order stay apart") {
  struct Block {
    std::byte* data;
    std::size_t bytes;
    unsigned char value;
  };
  for (const std::uint64_t seed : {1, 2, 3}) {
    HostPool pool(256 * mebi);
    Dice dice(seed);
    std::vector<Block> blocks;
    std::size_t used = 0;
    for (int i = 0; i < 400; ++i) {
      if (!blocks.empty() && (used > 48 * mebi || dice(0, 2) == 0)) {
        const auto at = static_cast<std::size_t>(dice(0, static_cast<std::int64_t>(blocks.size()) - 1));
        REQUIRE(is_filled(blocks[at].data, blocks[at].bytes, blocks[at].value));
        pool.release(blocks[at].data);
        used -= blocks[at].bytes;
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(at));
        continue;
      }
      const auto bytes = static_cast<std::size_t>(dice(1, 4) == 1 ? dice(1, 200000) : dice(1, 12 << 20));
      blocks.push_back({pool.allocate(bytes), bytes, static_cast<unsigned char>(i)});
      fill(blocks.back().data, bytes, blocks.back().value);
      used += bytes;
      const auto use = pool.use();
      REQUIRE(use.used <= use.resident);
      // Every hole may keep less than a large page at each end.
      REQUIRE(use.resident <= use.most + 16 * mebi + (blocks.size() + 1) * 4 * mebi);
    }
    for (const auto& block : blocks) {
      REQUIRE(is_filled(block.data, block.bytes, block.value));
      pool.release(block.data);
    }
    CHECK(pool.use().used == 0);
  }
}
