// Movement of data between ranks: collectives, messages and rounds of messages, blocking and started.

#include <algorithm>
#include <cstring>

#include "tests/comm/transport/transport_cases.h"

namespace mpigrad::transport_cases {

void check_movement(Transport& t, DType type, int root) {
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

  Buffer in_place(type, total);  // this rank's part is already in place
  if (own > 0) std::memcpy(in_place.bytes.data() + own_first * size_of(type), part.data(), part.bytes.size());
  t.allgather(in_place.bytes.data() + own_first * size_of(type), in_place.data(), counts, type);
  expect_all(in_place, "allgather in place");

  Buffer whole = filled(root, rank == root ? total : 0, type), received(type, own);
  t.scatter(whole.data(), received.data(), counts, type, root);
  for (std::int64_t i = 0; i < own; ++i) expect(received, i, value(root, own_first + i, type), "scatter");
}

void check_alltoall(Transport& t, DType type) {
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

void check_exchange(Transport& t, DType type, bool blocking) {
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
  std::rotate(receives.begin(), receives.begin() + 2, receives.begin() + 4);  // first with other tags of one peer
  if (blocking) {
    t.exchange(sends, receives, type);
  } else {
    // Two running receives from the same peer with the same tag, completed in the other order.
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

void check_round(Transport& t, DType type) {
  const int size = t.size(), rank = t.rank();
  const int sent_tags[] = {9, 5, 9, 7}, received_tags[] = {5, 7, 9, 9};
  const int sent_place[] = {1, 3, 0, 2};  // positions of the received messages in the sender's list
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

void check_started_movement(Transport& t, DType type) {
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

}  // namespace mpigrad::transport_cases
