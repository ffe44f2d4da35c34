// Members of communicators made from others, and refused calls.

#include <algorithm>

#include "tests/comm/transport/transport_cases.h"

namespace mpigrad::transport_cases {

void check_members(Transport& t, const std::vector<int>& world_ranks, int world_rank) {
  require(t.size() == static_cast<int>(world_ranks.size()) && world_ranks[static_cast<std::size_t>(t.rank())] == world_rank,
          "[transport_cases] rank {} of {}, expected {} ranks", t.rank(), t.size(), world_ranks.size());
  std::vector<std::int64_t> counts(world_ranks.size(), 1);
  std::vector<std::int32_t> all(world_ranks.size());
  const std::int32_t mine = world_rank;
  t.allgather(&mine, all.data(), counts, DType::int32);
  require(std::equal(all.begin(), all.end(), world_ranks.begin()), "[transport_cases] other members than expected");
}

void check_parts(Transport& t) {
  const int size = t.size(), rank = t.rank();
  std::vector<int> everyone, reversed, even, odd;
  for (int r = 0; r < size; ++r) everyone.push_back(r), (r % 2 == 0 ? even : odd).push_back(r);
  reversed.assign(everyone.rbegin(), everyone.rend());

  check_members(*t.duplicate(), everyone, rank);
  check_members(*t.subgroup(reversed), reversed, rank);
  // Only the members call; twice, and then again on a communicator made from it.
  const auto& mine = rank % 2 == 0 ? even : odd;
  auto half = t.subgroup(mine);
  check_members(*half, mine, rank);
  check_members(*t.subgroup(mine), mine, rank);
  check_members(*half->duplicate(), mine, rank);

  auto by_parity = t.split(rank % 2, -rank);
  std::vector<int> backwards(mine.rbegin(), mine.rend());
  check_members(*by_parity, backwards, rank);
  auto equal_keys = t.split(3, 0);
  check_members(*equal_keys, everyone, rank);
  auto without_last = t.split(rank == size - 1 ? -1 : 0, 0);
  require((without_last == nullptr) == (rank == size - 1), "[transport_cases] a negative colour gets no communicator");
}

void check_communicators(Transport& t) {
  check_parts(t);
  const int size = t.size(), rank = t.rank();
  // Messages and calls of different communicators do not interfere.
  std::int32_t out[2] = {10 * rank, 10 * rank + 1}, in[2] = {-1, -1};
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  auto other = t.duplicate();
  const Message send[2] = {{next, 1, &out[0], 1}, {next, 1, &out[1], 1}};
  const Message receive[2] = {{previous, 1, &in[0], 1}, {previous, 1, &in[1], 1}};
  auto a = other->start_exchange({&send[1], 1}, {}, DType::int32);
  auto b = t.start_exchange({&send[0], 1}, {&receive[0], 1}, DType::int32);
  auto c = other->start_exchange({}, {&receive[1], 1}, DType::int32);
  c.wait(), b.wait(), a.wait();
  require(in[0] == 10 * previous && in[1] == 10 * previous + 1, "[transport_cases] messages of two communicators are mixed");
}

void check_refusals(Transport& t) {
  std::uint8_t flag = 1;
  const auto refuses = [](const std::string& text, const std::string& part) {
    require(text.find(part) != std::string::npos, "[transport_cases] expected an error with '{}', got '{}'", part, text);
  };
  refuses(testing::error_text([&] { t.allreduce(&flag, &flag, 1, DType::boolean, CombineOp::sum); }), "[allreduce] booleans");
  std::uint16_t count = 65535;
  for (const auto op : all_reductions)
    refuses(testing::error_text([&] { t.allreduce(&count, &count, 1, DType::uint16, op); }),
            "[allreduce] nothing computes with uint16 here; cast to int32 first");
  refuses(testing::error_text([&] { t.bcast(&flag, -1, DType::uint8, 0); }), "not negative");
  refuses(testing::error_text([&] { t.bcast(&flag, 1, DType::uint8, t.size()); }), "is not a rank");
  const std::vector<int> twice = {t.rank(), t.rank()};
  refuses(testing::error_text([&] { t.subgroup(twice); }), "listed twice");
}

}  // namespace mpigrad::transport_cases
