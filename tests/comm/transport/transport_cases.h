#pragma once
// Every call of a transport against its definition, computed locally: what each rank holds is a known function of its rank.
// Collective; the first wrong value throws. Run by transport_test.cpp (threads) and transport_mpi_test.cpp.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "comm/transport/transport.h"
#include "framework/base/error.h"
#include "tests/support/errors.h"

namespace mpigrad::transport_cases {

constexpr DType all_types[] = {DType::float32, DType::float64, DType::int64,    DType::int32,   DType::int16,
                               DType::uint8,   DType::boolean, DType::bfloat16, DType::float16, DType::uint16};
constexpr CombineOp all_reductions[] = {CombineOp::sum, CombineOp::max, CombineOp::min, CombineOp::prod};

// Element i of rank r's buffer: small integers, so that every type holds every result exactly (products of 7 ranks included). Of
// uint16, which is not reduced, what int16 does not hold.
inline double value(int r, std::int64_t i, DType type) {
  const auto k = (7 * r + 3 * i + i * i * (r + 1)) % 11;
  if (type == DType::boolean) return static_cast<double>(k % 2);
  return static_cast<double>((type == DType::uint16 ? 65500 : 0) + (k % 3 == 0 ? 2 : 1 + (k == 4 ? 2 : 0)));
}

// Elements as raw bytes, so that one code path serves all types (std::vector<bool> has no data()).
struct Buffer {
  DType type;
  std::int64_t count;
  std::vector<std::byte> bytes;

  Buffer(DType t, std::int64_t n) : type(t), count(n), bytes(static_cast<std::size_t>(n * size_of(t)), std::byte{0x55}) {}
  void* data() { return count == 0 ? nullptr : bytes.data(); }
  void set(std::int64_t i, double x) {
    visit_any(type, [&](auto zero) {
      const auto converted = static_cast<decltype(zero)>(x);
      std::memcpy(bytes.data() + i * size_of(type), &converted, sizeof(converted));
    });
  }
  double get(std::int64_t i) const {
    return visit_any(type, [&](auto zero) {
      if constexpr (sizeof(zero) == 1) return static_cast<double>(bytes[static_cast<std::size_t>(i)]);
      std::memcpy(&zero, bytes.data() + i * size_of(type), sizeof(zero));
      return static_cast<double>(zero);
    });
  }
};

inline Buffer filled(int rank, std::int64_t count, DType type, std::int64_t first = 0) {
  Buffer buffer(type, count);
  for (std::int64_t i = 0; i < count; ++i) buffer.set(i, value(rank, first + i, type));
  return buffer;
}

inline void expect(const Buffer& got, std::int64_t i, double wanted, const std::string& what) {
  require(got.get(i) == wanted, "[transport_cases] {}, {}: element {} is {} instead of {}", what, name_of(got.type), i,
          got.get(i), wanted);
}

inline double reduced(int size, std::int64_t i, DType type, CombineOp op) {
  double result = value(0, i, type);
  for (int r = 1; r < size; ++r) {
    const double x = value(r, i, type);
    if (op == CombineOp::sum) result += x;
    if (op == CombineOp::prod) result *= x;
    if (op == CombineOp::max) result = std::max(result, x);
    if (op == CombineOp::min) result = std::min(result, x);
  }
  return result;
}

inline bool allowed(DType type, CombineOp op) {
  return type != DType::uint16 && (type != DType::boolean || op == CombineOp::max || op == CombineOp::min);
}

// uneven, with zeros
inline std::vector<std::int64_t> uneven(int size) {
  std::vector<std::int64_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(r % 3 == 1 ? 0 : 2 + 3 * r);
  return counts;
}

inline void check_reductions(Transport& t, DType type, CombineOp op, std::int64_t count) {
  const int size = t.size(), rank = t.rank();
  const auto what = [&](const char* call) {
    return fmt::format("{} {} of {} on rank {} of {}", call, name_of(op), count, rank, size);
  };
  for (const bool in_place : {false, true}) {
    Buffer in = filled(rank, count, type), out(type, count);
    t.allreduce(in.data(), in_place ? in.data() : out.data(), count, type, op);
    for (std::int64_t i = 0; i < count; ++i) expect(in_place ? in : out, i, reduced(size, i, type, op), what("allreduce"));
  }
  for (const bool in_place : {false, true}) {
    Buffer in = filled(rank, count, type), out(type, count);
    auto pending = t.start_allreduce(in.data(), in_place ? in.data() : out.data(), count, type, op);
    pending.wait();
    pending.wait();
    for (std::int64_t i = 0; i < count; ++i) expect(in_place ? in : out, i, reduced(size, i, type, op), what("start_allreduce"));
  }
  const int root = size - 1;
  for (const bool in_place : {false, true}) {
    Buffer in = filled(rank, count, type), out(type, count);
    t.reduce(in.data(), rank != root ? nullptr : in_place ? in.data() : out.data(), count, type, op, root);
    for (std::int64_t i = 0; i < count; ++i)
      expect(rank == root && in_place ? in
             : rank == root           ? out
                                      : in,
             i, rank == root ? reduced(size, i, type, op) : value(rank, i, type), what("reduce"));
  }
  const auto counts = uneven(size);
  std::int64_t total = 0, first = 0;
  for (int r = 0; r < size; ++r) {
    if (r < rank) first += counts[static_cast<std::size_t>(r)];
    total += counts[static_cast<std::size_t>(r)];
  }
  Buffer in = filled(rank, total, type), out(type, counts[static_cast<std::size_t>(rank)]);
  t.reduce_scatter(in.data(), out.data(), counts, type, op);
  for (std::int64_t i = 0; i < out.count; ++i) expect(out, i, reduced(size, first + i, type, op), what("reduce_scatter"));
}

// All that combining the numbers, pair by pair in any order and rounded to T each time, can give.
template <class T>
std::set<float> any_order(const std::vector<T>& x, CombineOp op) {
  std::vector<std::set<float>> of(std::size_t{1} << x.size());  // by set of ranks
  for (std::size_t r = 0; r < x.size(); ++r) of[std::size_t{1} << r] = {x[r]};
  for (std::size_t ranks = 1; ranks < of.size(); ++ranks)
    for (std::size_t part = (ranks - 1) & ranks; part > 0; part = (part - 1) & ranks)
      for (const float a : of[part])
        for (const float b : of[ranks & ~part])
          of[ranks].insert(T(op == CombineOp::sum    ? a + b
                             : op == CombineOp::prod ? a * b
                             : op == CombineOp::max  ? std::max(a, b)
                                                     : std::min(a, b)));
  return of.back();
}

// Results with more digits than T has: rounded at each step. Every fifth element of max and min has a NaN, which wins.
template <class T>
void check_rounding(Transport& t, CombineOp op) {
  const std::int64_t count = 60;
  const auto number = [&](int rank, std::int64_t i) {
    const auto k = static_cast<float>((37 * (rank + 1) * (i + 3) + 11 * i * i) % 251);
    if ((op == CombineOp::max || op == CombineOp::min) && i % 5 == 0 && rank == i % t.size())
      return T(std::numeric_limits<float>::quiet_NaN());
    return T(op == CombineOp::prod ? 1 + k / 251 : (k - 100) * (i % 2 == 0 ? 1.0F : 0.013F));
  };
  std::vector<T> in, out(count), later(count);
  for (std::int64_t i = 0; i < count; ++i) in.push_back(number(t.rank(), i));
  t.allreduce(in.data(), out.data(), count, dtype_of<T>(), op);
  auto pending = t.start_allreduce(in.data(), later.data(), count, dtype_of<T>(), op);
  pending.wait();
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<T> all;
    bool number_wins = true;
    for (int r = 0; r < t.size(); ++r) {
      all.push_back(number(r, i));
      number_wins = number_wins && all.back() == all.back();
    }
    for (const float y : {float(out[static_cast<std::size_t>(i)]), float(later[static_cast<std::size_t>(i)])})
      require(number_wins ? any_order(all, op).contains(y) : y != y,
              "[transport_cases] {} of {} at {} on {} ranks: no order of rounded steps gives {}", name_of(op),
              name_of(dtype_of<T>()), i, t.size(), y);
  }
}

inline void check_half_rounding(Transport& t) {
  for (auto op : all_reductions) check_rounding<BFloat16>(t, op), check_rounding<Float16>(t, op);
}

inline void check_movement(Transport& t, DType type, int root) {
  const int size = t.size(), rank = t.rank();
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{5}}) {
    Buffer data = filled(rank, count, type);
    t.bcast(data.data(), count, type, root);
    for (std::int64_t i = 0; i < count; ++i) expect(data, i, value(root, i, type), "broadcast");
  }
  const auto counts = uneven(size);
  std::int64_t total = 0;
  std::vector<std::int64_t> first;
  for (auto count : counts) first.push_back(total), total += count;
  const auto own = counts[static_cast<std::size_t>(rank)], own_first = first[static_cast<std::size_t>(rank)];
  const auto expect_all = [&](const Buffer& all, const char* what) {
    for (int r = 0; r < size; ++r)
      for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(r)]; ++i)
        expect(all, first[static_cast<std::size_t>(r)] + i, value(r, i, type), what);
  };
  Buffer part = filled(rank, own, type), gathered(type, rank == root ? total : 0), everywhere(type, total);
  t.gather(part.data(), gathered.data(), counts, type, root);
  if (rank == root) expect_all(gathered, "gather");
  t.allgather(part.data(), everywhere.data(), counts, type);
  expect_all(everywhere, "allgather");

  Buffer in_place(type, total);  // this rank's part already lies where it belongs
  if (own > 0) std::memcpy(in_place.bytes.data() + own_first * size_of(type), part.data(), part.bytes.size());
  t.allgather(in_place.bytes.data() + own_first * size_of(type), in_place.data(), counts, type);
  expect_all(in_place, "allgather in place");

  Buffer whole = filled(root, rank == root ? total : 0, type), received(type, own);
  t.scatter(whole.data(), received.data(), counts, type, root);
  for (std::int64_t i = 0; i < own; ++i) expect(received, i, value(root, own_first + i, type), "scatter");
}

// Rank r sends (r + 2 s) % 4 elements to rank s.
inline void check_alltoall(Transport& t, DType type) {
  const int size = t.size(), rank = t.rank();
  const auto count = [](int from, int to) { return static_cast<std::int64_t>((from + 2 * to) % 4); };
  std::vector<std::int64_t> send, receive;
  std::int64_t sent = 0, expected = 0;
  for (int s = 0; s < size; ++s) {
    send.push_back(count(rank, s)), receive.push_back(count(s, rank));
    sent += send.back(), expected += receive.back();
  }
  Buffer in = filled(rank, sent, type), out(type, expected);
  t.alltoall(in.data(), send, out.data(), receive, type);
  std::int64_t k = 0;
  for (int s = 0; s < size; ++s) {
    std::int64_t first = 0;
    for (int q = 0; q < rank; ++q) first += count(s, q);
    for (std::int64_t i = 0; i < count(s, rank); ++i) expect(out, k++, value(s, first + i, type), "alltoall");
  }
}

// Every rank sends two messages with the same tag, one with another tag and an empty one to every rank, itself included.
inline void check_exchange(Transport& t, DType type, bool blocking) {
  const int size = t.size(), rank = t.rank();
  const std::int64_t counts[] = {3, 4, 2, 0};
  const int tags[] = {5, 5, 6, 7};
  std::vector<Buffer> out, in;
  std::vector<Message> sends, receives;
  for (int peer = 0; peer < size; ++peer)
    for (int m = 0; m < 4; ++m) {
      out.push_back(filled(rank, counts[m], type, 10 * peer + 100 * m));
      in.emplace_back(type, counts[m]);
    }
  for (int peer = 0; peer < size; ++peer)
    for (int m = 0; m < 4; ++m) {
      const auto k = static_cast<std::size_t>(4 * peer + m);
      sends.push_back({.peer = peer, .tag = tags[m], .data = out[k].data(), .count = counts[m]});
      receives.push_back({.peer = peer, .tag = tags[m], .data = in[k].data(), .count = counts[m]});
    }
  std::rotate(receives.begin(), receives.begin() + 2, receives.begin() + 4);  // other tags of one peer first
  if (blocking) {
    t.exchange(sends, receives, type);
  } else {
    // Two receives under way from the same peer with the same tag, completed in the other order.
    const std::vector<Message> first(receives.begin(), receives.begin() + 3), second(receives.begin() + 3, receives.end());
    auto a = t.start_exchange({}, first, type);
    auto b = t.start_exchange({}, second, type);
    auto c = t.start_exchange(sends, {}, type);
    b.wait(), a.wait(), c.wait();
  }
  for (int peer = 0; peer < size; ++peer)
    for (int m = 0; m < 4; ++m)
      for (std::int64_t i = 0; i < counts[m]; ++i)
        expect(in[static_cast<std::size_t>(4 * peer + m)], i, value(peer, 10 * rank + 100 * m + i, type), "exchange");
}

// Every rank sends to every rank, itself included, messages with tags that are posted in another order than they are received, of
// lengths that differ between pairs; then a round in which only rank 0 has something to say.
inline void check_round(Transport& t, DType type) {
  const int size = t.size(), rank = t.rank();
  const int sent_tags[] = {9, 5, 9, 7}, received_tags[] = {5, 7, 9, 9};
  const int sent_place[] = {1, 3, 0, 2};  // where in the sender's list what is received lies
  const auto count = [](int from, int to, int m) { return static_cast<std::int64_t>((from + 2 * to + 3 * m) % 5); };
  std::vector<Buffer> out, in;
  std::vector<Message> sends, receives;
  for (int peer = 0; peer < size; ++peer)
    for (int m = 0; m < 4; ++m) {
      out.push_back(filled(rank, count(rank, peer, m), type, 10 * peer + 100 * m));
      in.emplace_back(type, count(peer, rank, sent_place[m]));
    }
  for (int peer = 0; peer < size; ++peer)
    for (int m = 0; m < 4; ++m) {
      const auto k = static_cast<std::size_t>(4 * peer + m);
      sends.push_back({.peer = peer, .tag = sent_tags[m], .data = out[k].data(), .count = out[k].count});
      receives.push_back({.peer = peer, .tag = received_tags[m], .data = in[k].data(), .count = in[k].count});
    }
  auto pending = t.start_round(sends, receives, type);
  pending.wait();
  for (int peer = 0; peer < size; ++peer)
    for (int m = 0; m < 4; ++m) {
      const auto& got = in[static_cast<std::size_t>(4 * peer + m)];
      for (std::int64_t i = 0; i < got.count; ++i)
        expect(got, i, value(peer, 10 * rank + 100 * sent_place[m] + i, type), "round");
    }
  Buffer news = filled(0, 3, type), heard(type, 3);
  sends.clear(), receives.clear();
  if (rank == 0)
    for (int peer = 1; peer < size; ++peer) sends.push_back({.peer = peer, .tag = 1, .data = news.data(), .count = 3});
  if (rank != 0) receives.push_back({.peer = 0, .tag = 1, .data = heard.data(), .count = 3});
  t.start_round(sends, receives, type).wait();
  for (std::int64_t i = 0; rank != 0 && i < 3; ++i) expect(heard, i, value(0, i, type), "round of one rank");
  t.start_round({}, {}, type).wait();
}

// The non-blocking forms of what moves.
inline void check_started_movement(Transport& t, DType type) {
  const int size = t.size(), rank = t.rank(), root = size - 1;
  const auto counts = uneven(size);
  std::int64_t total = 0;
  for (const auto count : counts) total += count;
  Buffer data = filled(rank, 6, type), part = filled(rank, counts[static_cast<std::size_t>(rank)], type), all(type, total);
  auto broadcast = t.start({.kind = CollectiveKind::bcast, .out = data.data(), .type = type, .root = root, .count = 6});
  auto gathering =
      t.start({.kind = CollectiveKind::allgather, .in = part.data(), .out = all.data(), .type = type, .counts = counts});
  const std::vector<std::int64_t> two(counts.size(), 2);
  Buffer in = filled(rank, 2 * size, type), out(type, 2 * size);
  auto turning = t.start(
      {.kind = CollectiveKind::alltoall, .in = in.data(), .out = out.data(), .type = type, .counts = two, .receive_counts = two});
  auto meeting = t.start({.kind = CollectiveKind::barrier});
  Buffer at_root(type, rank == root ? total : 0), source = filled(rank, rank == root ? total : 0, type);
  Buffer block(type, counts[static_cast<std::size_t>(rank)]);
  auto collecting = t.start(
      {.kind = CollectiveKind::gather, .in = part.data(), .out = at_root.data(), .type = type, .root = root, .counts = counts});
  auto dividing = t.start(
      {.kind = CollectiveKind::scatter, .in = source.data(), .out = block.data(), .type = type, .root = root, .counts = counts});
  turning.wait(), dividing.wait(), broadcast.wait(), meeting.wait(), collecting.wait(), gathering.wait();
  for (std::int64_t i = 0; i < 6; ++i) expect(data, i, value(root, i, type), "ibcast");
  std::int64_t k = 0;
  for (int r = 0; r < size; ++r) {
    for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(r)]; ++i, ++k) {
      expect(all, k, value(r, i, type), "iallgather");
      if (rank == root) expect(at_root, k, value(r, i, type), "igather");
      if (r == rank) expect(block, i, value(root, k, type), "iscatter");
    }
    for (std::int64_t i = 0; i < 2; ++i) expect(out, 2 * r + i, value(r, 2 * rank + i, type), "ialltoall");
  }
  if (!allowed(type, CombineOp::max)) return;
  Buffer sum(type, 6), scattered(type, counts[static_cast<std::size_t>(rank)]);
  Buffer mine = filled(rank, 6, type), whole = filled(rank, total, type);
  auto reducing = t.start({.kind = CollectiveKind::reduce,
                           .in = mine.data(),
                           .out = rank == root ? sum.data() : nullptr,
                           .type = type,
                           .op = CombineOp::max,
                           .root = root,
                           .count = 6});
  auto scattering = t.start({.kind = CollectiveKind::reduce_scatter,
                             .in = whole.data(),
                             .out = scattered.data(),
                             .type = type,
                             .op = CombineOp::max,
                             .counts = counts});
  scattering.wait(), reducing.wait();
  for (std::int64_t i = 0; rank == root && i < 6; ++i) expect(sum, i, reduced(size, i, type, CombineOp::max), "ireduce");
  std::int64_t first = 0;
  for (int r = 0; r < rank; ++r) first += counts[static_cast<std::size_t>(r)];
  for (std::int64_t i = 0; i < scattered.count; ++i)
    expect(scattered, i, reduced(size, first + i, type, CombineOp::max), "ireduce_scatter");
}

// The communicator has the members listed, in this order, told apart by their rank in `world`.
inline void check_members(Transport& t, const std::vector<int>& world_ranks, int world_rank) {
  require(t.size() == static_cast<int>(world_ranks.size()) && world_ranks[static_cast<std::size_t>(t.rank())] == world_rank,
          "[transport_cases] rank {} of {}, expected {} ranks", t.rank(), t.size(), world_ranks.size());
  std::vector<std::int64_t> counts(world_ranks.size(), 1);
  std::vector<std::int32_t> all(world_ranks.size());
  const std::int32_t mine = world_rank;
  t.allgather(&mine, all.data(), counts, DType::int32);
  require(std::equal(all.begin(), all.end(), world_ranks.begin()), "[transport_cases] other members than expected");
}

inline void check_parts(Transport& t) {
  const int size = t.size(), rank = t.rank();
  std::vector<int> everyone, reversed, even, odd;
  for (int r = 0; r < size; ++r) everyone.push_back(r), (r % 2 == 0 ? even : odd).push_back(r);
  reversed.assign(everyone.rbegin(), everyone.rend());

  check_members(*t.duplicate(), everyone, rank);
  check_members(*t.subgroup(reversed), reversed, rank);
  // Only the members call; twice, and then again below it.
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

inline void check_communicators(Transport& t) {
  check_parts(t);
  const int size = t.size(), rank = t.rank();
  // Messages and calls of different communicators do not mix.
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

// Two reductions under way, finished in another order than started, with a blocking one between.
inline void check_overlap(Transport& t) {
  const std::int64_t n = 3000;
  Buffer a = filled(t.rank(), n, DType::float32), b = filled(t.rank(), n, DType::float64), c(DType::int32, 4);
  auto first = t.start_allreduce(a.data(), a.data(), n, DType::float32, CombineOp::sum);
  auto second = t.start_allreduce(b.data(), b.data(), n, DType::float64, CombineOp::max);
  Buffer d = filled(t.rank(), 4, DType::int32);
  t.allreduce(d.data(), c.data(), 4, DType::int32, CombineOp::sum);
  second.wait();
  first = {};  // waits
  for (std::int64_t i = 0; i < n; ++i) {
    expect(a, i, reduced(t.size(), i, DType::float32, CombineOp::sum), "first of two reductions");
    expect(b, i, reduced(t.size(), i, DType::float64, CombineOp::max), "second of two reductions");
  }
}

inline void check_refusals(Transport& t) {
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
