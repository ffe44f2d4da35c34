// One rank thread's end of a Group.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "comm/threads/group.h"
#include "comm/threads/reduce.h"
#include "comm/transport_checks.h"

namespace mpigrad::threads {
namespace {

using namespace transport_checks;
using Calls = std::span<const Call* const>;

std::byte* at(void* data, std::int64_t bytes) { return static_cast<std::byte*>(data) + bytes; }
const std::byte* at(const void* data, std::int64_t bytes) { return static_cast<const std::byte*>(data) + bytes; }

// A part of a buffer may already lie where it belongs.
void copy(void* to, const void* from, std::int64_t bytes) noexcept {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

// Elements [first, last) of all ranks' inputs, reduced in rank order, into `write(piece, first, count)`. Each piece is complete
// before it is written, and nobody else reads these elements, so that out == in is allowed.
template <class Write>
void reduce_slice(Calls calls, std::int64_t first, std::int64_t last, Write write) noexcept {
  constexpr std::int64_t piece_bytes = 8192;
  alignas(64) std::array<std::byte, piece_bytes> piece;
  const Call& call = *calls[0];
  const std::int64_t size = size_of(call.type);
  for (std::int64_t i = first; i < last; i += piece_bytes / size) {
    const std::int64_t n = std::min(last - i, piece_bytes / size);
    copy(piece.data(), at(call.in, i * size), n * size);
    for (std::size_t r = 1; r < calls.size(); ++r) reduce_into(piece.data(), at(calls[r]->in, i * size), n, call.type, call.op);
    write(piece.data(), i, n);
  }
}

void reduce_to_all(Calls calls, std::int64_t first, std::int64_t last) noexcept {
  const std::int64_t size = size_of(calls[0]->type);
  reduce_slice(calls, first, last, [&](const std::byte* piece, std::int64_t i, std::int64_t n) {
    for (const Call* call : calls) copy(at(call->out, i * size), piece, n * size);
  });
}

class ThreadsTransport final : public Transport {
 public:
  ThreadsTransport(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  std::string_view name() const override { return "threads"; }
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  int node_rank() const override { return rank_; }
  int node_size() const override { return size(); }

  void barrier() override {
    collective({.name = "barrier"}, [](Calls) {});
  }

  void broadcast(void* data, std::int64_t count, DType type, int root) override {
    check_count("broadcast", count);
    check_rank("broadcast", "root", root, size());
    collective({.name = "broadcast", .type = type, .root = root, .count = count, .in = data, .out = data},
               [&](Calls calls) { copy(data, calls[index(root)]->in, count * size_of(type)); });
  }

  void allreduce(const void* in, void* out, std::int64_t count, DType type, Reduction op) override {
    check_count("allreduce", count);
    check_reduction("allreduce", type, op);
    collective({.name = "allreduce", .type = type, .op = op, .count = count, .in = in, .out = out}, [&](Calls calls) {
      const auto [first, last] = slice(count);
      reduce_to_all(calls, first, last);
    });
  }

  void reduce(const void* in, void* out, std::int64_t count, DType type, Reduction op, int root) override {
    check_count("reduce", count);
    check_reduction("reduce", type, op);
    check_rank("reduce", "root", root, size());
    collective({.name = "reduce", .type = type, .op = op, .root = root, .count = count, .in = in, .out = out}, [&](Calls calls) {
      const auto [first, last] = slice(count);
      reduce_slice(calls, first, last, [&](const std::byte* piece, std::int64_t i, std::int64_t n) {
        copy(at(calls[index(root)]->out, i * size_of(type)), piece, n * size_of(type));
      });
    });
  }

  void gather(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root) override {
    check_counts("gather", counts, size());
    check_rank("gather", "root", root, size());
    collective({.name = "gather", .type = type, .root = root, .counts = counts, .in = in, .out = out}, [&](Calls calls) {
      if (rank_ == root) concatenate(calls, out, counts, type);
    });
  }

  void scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root) override {
    check_counts("scatter", counts, size());
    check_rank("scatter", "root", root, size());
    collective({.name = "scatter", .type = type, .root = root, .counts = counts, .in = in, .out = out}, [&](Calls calls) {
      copy(out, at(calls[index(root)]->in, offset(counts, index(rank_)) * size_of(type)), counts[index(rank_)] * size_of(type));
    });
  }

  void allgather(const void* in, void* out, std::span<const std::int64_t> counts, DType type) override {
    check_counts("allgather", counts, size());
    collective({.name = "allgather", .type = type, .counts = counts, .in = in, .out = out},
               [&](Calls calls) { concatenate(calls, out, counts, type); });
  }

  void reduce_scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, Reduction op) override {
    check_counts("reduce_scatter", counts, size());
    check_reduction("reduce_scatter", type, op);
    collective({.name = "reduce_scatter", .type = type, .op = op, .counts = counts, .in = in, .out = out}, [&](Calls calls) {
      const std::int64_t first = offset(counts, index(rank_));
      reduce_slice(calls, first, first + counts[index(rank_)], [&](const std::byte* piece, std::int64_t i, std::int64_t n) {
        copy(at(out, (i - first) * size_of(type)), piece, n * size_of(type));
      });
    });
  }

  void alltoall(const void* in, std::span<const std::int64_t> send_counts, void* out,
                std::span<const std::int64_t> receive_counts, DType type) override {
    check_counts("alltoall", send_counts, size());
    check_counts("alltoall", receive_counts, size());
    collective({.name = "alltoall", .type = type, .counts = send_counts, .receive_counts = receive_counts, .in = in, .out = out},
               [&](Calls calls) {
                 std::int64_t to = 0;
                 for (std::size_t r = 0; r < calls.size(); ++r) {
                   const std::int64_t from = offset(calls[r]->counts, index(rank_));
                   copy(at(out, to * size_of(type)), at(calls[r]->in, from * size_of(type)), receive_counts[r] * size_of(type));
                   to += receive_counts[r];
                 }
               });
  }

  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    start_exchange(sends, receives, type)->wait();
  }
  std::unique_ptr<PendingOperation> start_exchange(std::span<const Message> sends, std::span<const Message> receives,
                                                   DType type) override;
  std::unique_ptr<PendingOperation> start_allreduce(const void* in, void* out, std::int64_t count, DType type,
                                                    Reduction op) override;

  std::shared_ptr<Transport> subgroup(std::span<const int> ranks) override {
    const int place = check_subgroup(ranks, rank_, size());
    const std::vector<int> key(ranks.begin(), ranks.end());
    return std::make_shared<ThreadsTransport>(group_->child(ranks, subgroups_made_[key]++), place);
  }

  std::shared_ptr<Transport> split(int color, int key) override {
    const std::array<int, 2> mine = {color, key};
    std::vector<std::array<int, 2>> all(index(size()));
    collective({.name = "split", .in = mine.data()}, [&](Calls calls) {
      for (std::size_t r = 0; r < calls.size(); ++r) std::memcpy(all[r].data(), calls[r]->in, sizeof(mine));
    });
    if (color < 0) return nullptr;
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r)
      if (all[index(r)][0] == color) ranks.push_back(r);
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return all[index(a)][1] < all[index(b)][1]; });
    return subgroup(ranks);
  }

  std::shared_ptr<Transport> duplicate() override {
    std::vector<int> ranks(index(size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return subgroup(ranks);
  }

  void abort(int code) override {
    std::fflush(nullptr);
    std::_Exit(code == 0 ? 1 : code);
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  // Everything between enter and leave reads memory of other ranks and must not throw. All ranks enter and leave even when
  // their calls differ, so that the error is the same everywhere and the next call finds the group in order.
  template <class Body>
  void collective(const Call& call, Body&& body) {
    const Calls calls = group_->enter(rank_, call);
    const std::string problem = disagreement(calls);
    if (problem.empty()) [&]() noexcept { body(calls); }();
    group_->leave();
    if (!problem.empty()) throw Error(problem);
  }

  // This rank's share of reducing `count` elements; small ones are not worth dividing.
  std::pair<std::int64_t, std::int64_t> slice(std::int64_t count) const {
    const std::int64_t step = std::max<std::int64_t>(1024, (count + size() - 1) / size());
    return {std::min(count, step * rank_), std::min(count, step * (rank_ + 1))};
  }

  static void concatenate(Calls calls, void* out, std::span<const std::int64_t> counts, DType type) noexcept {
    std::int64_t first = 0;
    for (std::size_t r = 0; r < calls.size(); ++r) {
      copy(at(out, first * size_of(type)), calls[r]->in, counts[r] * size_of(type));
      first += counts[r];
    }
  }

  std::shared_ptr<Group> group_;
  int rank_;
  std::uint64_t reductions_started_ = 0;
  std::map<std::vector<int>, std::uint64_t> subgroups_made_;
};

// ---- pending operations

// wait() runs `finish` once; the destructor runs it too, or `give_up` while an exception unwinds the stack.
template <class Finish, class GiveUp>
class Pending final : public PendingOperation {
 public:
  Pending(Finish finish, GiveUp give_up) : finish_(std::move(finish)), give_up_(std::move(give_up)) {}
  ~Pending() override {
    if (done_) return;
    if (std::uncaught_exceptions() > exceptions_) {
      give_up_();
      return;
    }
    try {
      finish_();
    } catch (...) {  // a failure of the world is seen by the next call
    }
  }
  void wait() override {
    if (!std::exchange(done_, true)) finish_();
  }

 private:
  Finish finish_;
  GiveUp give_up_;
  bool done_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

template <class Finish, class GiveUp>
std::unique_ptr<PendingOperation> pending(Finish finish, GiveUp give_up) {
  return std::make_unique<Pending<Finish, GiveUp>>(std::move(finish), std::move(give_up));
}

std::unique_ptr<PendingOperation> ThreadsTransport::start_exchange(std::span<const Message> sends,
                                                                   std::span<const Message> receives, DType type) {
  check_messages(sends, size(), max_tag());
  check_messages(receives, size(), max_tag());
  std::vector<std::pair<Message, std::uint64_t>> posted;
  for (const auto& message : receives) posted.emplace_back(message, group_->post_receive(message.peer, rank_, message.tag));
  for (const auto& message : sends) {
    Bytes copied = copy_of(message.data, message.count * size_of(type));
    group_->deliver(rank_, message.peer, message.tag, {std::move(copied), message.count, type});
  }
  auto finish = [group = group_, rank = rank_, type, posted = std::move(posted)] {
    for (const auto& [message, ticket] : posted) {
      const auto envelope = group->take(message.peer, rank, message.tag, ticket);
      require(envelope.count == message.count && envelope.type == type,
              "[exchange] rank {} sent {} {} with tag {} to rank {}, which expects {} {}", message.peer, envelope.count,
              name_of(envelope.type), message.tag, rank, message.count, name_of(type));
      copy(message.data, envelope.data.get(), message.count * size_of(type));
    }
  };
  return pending(std::move(finish), [] {});  // messages are copies: nobody else touches the receives' buffers
}

std::unique_ptr<PendingOperation> ThreadsTransport::start_allreduce(const void* in, void* out, std::int64_t count, DType type,
                                                                    Reduction op) {
  check_count("start_allreduce", count);
  check_reduction("start_allreduce", type, op);
  const Call call = {.name = "start_allreduce", .type = type, .op = op, .count = count, .in = in, .out = out};
  auto started = group_->start(rank_, reductions_started_++, call);
  return pending([group = group_, started] { group->complete(*started, reduce_to_all); },
                 [group = group_, started, rank = rank_] { group->abandon(*started, rank, reduce_to_all); });
}

}  // namespace
}  // namespace mpigrad::threads

namespace mpigrad {

void run_threads(int ranks, const std::function<void(std::shared_ptr<Transport>)>& body) {
  require(ranks >= 1, "[run_threads] at least one rank is needed, got {}", ranks);
  auto world = std::make_shared<threads::World>(ranks);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  auto group = std::make_shared<threads::Group>(world, members);
  world->add(group);

  std::mutex mutex;
  std::exception_ptr first;
  const auto keep_first = [&](int rank, const char* message) {
    {
      // One lock for both: the exception that is rethrown is the one the others are told about.
      std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
    world->fail(rank, message);
  };
  const auto rank_main = [&](int rank) {
    try {
      body(std::make_shared<threads::ThreadsTransport>(group, rank));
    } catch (const std::exception& error) {
      keep_first(rank, error.what());
    } catch (...) {
      keep_first(rank, "an exception that is not a std::exception");
    }
    world->end(rank);
  };

  std::vector<std::thread> threads;
  try {
    for (int r = 0; r < ranks; ++r) threads.emplace_back(rank_main, r);
  } catch (const std::exception& error) {  // the system's limit of threads
    keep_first(static_cast<int>(threads.size()), error.what());
  }
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace mpigrad
