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

#include "comm/transport/threads/group.h"
#include "comm/transport/threads/shares.h"
#include "comm/transport/transport_checks.h"

namespace mpigrad::threads {
namespace {

using namespace transport_checks;

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

class ThreadsTransport final : public Transport {
 public:
  ThreadsTransport(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  std::string_view name() const override { return "threads"; }
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  int node_rank() const override { return rank_; }
  int node_size() const override { return size(); }

  void barrier() override { collective({.name = "barrier", .share = nothing}); }

  void broadcast(void* data, std::int64_t count, DType type, int root) override {
    check_count("broadcast", count);
    check_rank("broadcast", "root", root, size());
    collective(
        {.name = "broadcast", .type = type, .root = root, .count = count, .in = data, .out = data, .share = broadcast_share});
  }

  void allreduce(const void* in, void* out, std::int64_t count, DType type, Reduction op) override {
    check_count("allreduce", count);
    check_reduction("allreduce", type, op);
    collective({.name = "allreduce", .type = type, .op = op, .count = count, .in = in, .out = out, .share = allreduce_share});
  }

  void reduce(const void* in, void* out, std::int64_t count, DType type, Reduction op, int root) override {
    check_count("reduce", count);
    check_reduction("reduce", type, op);
    check_rank("reduce", "root", root, size());
    collective(
        {.name = "reduce", .type = type, .op = op, .root = root, .count = count, .in = in, .out = out, .share = reduce_share});
  }

  void gather(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root) override {
    check_counts("gather", counts, size());
    check_rank("gather", "root", root, size());
    collective({.name = "gather", .type = type, .root = root, .counts = counts, .in = in, .out = out, .share = gather_share});
  }

  void scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, int root) override {
    check_counts("scatter", counts, size());
    check_rank("scatter", "root", root, size());
    collective({.name = "scatter", .type = type, .root = root, .counts = counts, .in = in, .out = out, .share = scatter_share});
  }

  void allgather(const void* in, void* out, std::span<const std::int64_t> counts, DType type) override {
    check_counts("allgather", counts, size());
    collective({.name = "allgather", .type = type, .counts = counts, .in = in, .out = out, .share = allgather_share});
  }

  void reduce_scatter(const void* in, void* out, std::span<const std::int64_t> counts, DType type, Reduction op) override {
    check_counts("reduce_scatter", counts, size());
    check_reduction("reduce_scatter", type, op);
    collective({.name = "reduce_scatter",
                .type = type,
                .op = op,
                .counts = counts,
                .in = in,
                .out = out,
                .share = reduce_scatter_share});
  }

  void alltoall(const void* in, std::span<const std::int64_t> send_counts, void* out,
                std::span<const std::int64_t> receive_counts, DType type) override {
    check_counts("alltoall", send_counts, size());
    check_counts("alltoall", receive_counts, size());
    collective({.name = "alltoall",
                .type = type,
                .counts = send_counts,
                .receive_counts = receive_counts,
                .in = in,
                .out = out,
                .share = alltoall_share});
  }

  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    start_exchange(sends, receives, type)->wait();
  }
  std::unique_ptr<PendingOperation> start_exchange(std::span<const Message> sends, std::span<const Message> receives,
                                                   DType type) override;
  std::unique_ptr<PendingReceive> start_receive(const Message& message, DType type) override;
  std::unique_ptr<PendingOperation> start(const Collective& call) override;

  std::shared_ptr<Transport> subgroup(std::span<const int> ranks) override {
    const int place = check_subgroup(ranks, rank_, size());
    const std::vector<int> key(ranks.begin(), ranks.end());
    return std::make_shared<ThreadsTransport>(group_->child(ranks, subgroups_made_[key]++), place);
  }

  std::shared_ptr<Transport> split(int color, int key) override {
    const std::array<int, 2> mine = {color, key};
    std::vector<std::array<int, 2>> all(index(size()));
    const std::vector<std::int64_t> counts(index(size()), sizeof(mine));
    collective({.name = "split", .counts = counts, .in = mine.data(), .out = all.data(), .share = allgather_share});
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
  // Everything between enter and leave reads memory of other ranks and must not throw. All ranks enter and leave even when
  // their calls differ, so that the error is the same everywhere and the next call finds the group in order.
  void collective(const Call& call) {
    const Calls calls = group_->enter(rank_, call);
    const std::string problem = disagreement(calls);
    if (problem.empty()) call.share(calls, rank_);
    group_->leave();
    if (!problem.empty()) throw Error(problem);
  }

  std::shared_ptr<Group> group_;
  int rank_;
  std::uint64_t started_ = 0;
  std::map<std::vector<int>, std::uint64_t> subgroups_made_;
};

// ---- pending operations

// What a receive waits for, checked against what it expects.
class Receive final : public PendingReceive {
 public:
  Receive(std::shared_ptr<Group> group, int rank, const Message& message, DType type)
      : group_(std::move(group)), rank_(rank), message_(message), type_(type),
        posted_(group_->post_receive(message.peer, rank, message.tag)) {}
  ~Receive() override {
    if (done_) return;
    if (std::uncaught_exceptions() > exceptions_) {
      group_->cancel(rank_, posted_);
      return;
    }
    try {
      wait();
    } catch (...) {  // a failure of the world is seen by the next call
    }
  }
  Receive(const Receive&) = delete;
  Receive& operator=(const Receive&) = delete;

  void wait() override {
    if (std::exchange(done_, true)) return;
    const auto envelope = group_->take(rank_, posted_);
    status_ = {envelope.source, envelope.tag};
    require(envelope.count == message_.count && envelope.type == type_,
            "[exchange] rank {} sent {} {} with tag {} to rank {}, which expects {} {}", envelope.source, envelope.count,
            name_of(envelope.type), envelope.tag, rank_, message_.count, name_of(type_));
    copy(message_.data, envelope.data.get(), message_.count * size_of(type_));
  }
  bool test() override { return done_ || group_->filled(rank_, *posted_); }
  void cancel() override {
    if (!std::exchange(done_, true)) group_->cancel(rank_, posted_);
  }
  Status status() const override { return status_; }

 private:
  std::shared_ptr<Group> group_;
  int rank_;
  Message message_;
  DType type_;
  std::shared_ptr<Group::Posted> posted_;
  Status status_;
  bool done_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

class Receives final : public PendingOperation {
 public:
  std::vector<std::unique_ptr<Receive>> all;
  void wait() override {
    for (auto& receive : all) receive->wait();
  }
  bool test() override {
    return std::all_of(all.begin(), all.end(), [](auto& receive) { return receive->test(); });
  }
};

class StartedCollective final : public PendingOperation {
 public:
  StartedCollective(std::shared_ptr<Group> group, std::shared_ptr<Group::Started> started, int rank)
      : group_(std::move(group)), started_(std::move(started)), rank_(rank) {}
  ~StartedCollective() override {
    if (done_) return;
    if (std::uncaught_exceptions() > exceptions_) {
      group_->abandon(*started_, rank_);
      return;
    }
    try {
      wait();
    } catch (...) {  // a failure of the world is seen by the next call
    }
  }
  StartedCollective(const StartedCollective&) = delete;
  StartedCollective& operator=(const StartedCollective&) = delete;

  void wait() override {
    if (!std::exchange(done_, true)) group_->complete(*started_);
  }
  bool test() override { return done_ || group_->all_started(*started_); }

 private:
  std::shared_ptr<Group> group_;
  std::shared_ptr<Group::Started> started_;
  int rank_;
  bool done_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

std::unique_ptr<PendingOperation> ThreadsTransport::start_exchange(std::span<const Message> sends,
                                                                   std::span<const Message> receives, DType type) {
  check_messages(sends, size(), max_tag());
  check_messages(receives, size(), max_tag());
  auto pending = std::make_unique<Receives>();
  for (const auto& message : receives) pending->all.push_back(std::make_unique<Receive>(group_, rank_, message, type));
  for (const auto& message : sends) {
    Bytes copied = copy_of(message.data, message.count * size_of(type));
    group_->deliver(message.peer, {rank_, message.tag, std::move(copied), message.count, type});
  }
  return pending;
}

std::unique_ptr<PendingReceive> ThreadsTransport::start_receive(const Message& message, DType type) {
  check_receive(message, size(), max_tag());
  return std::make_unique<Receive>(group_, rank_, message, type);
}

std::unique_ptr<PendingOperation> ThreadsTransport::start(const Collective& c) {
  check_collective(c, size());
  Call call = {.name = name_of(c.kind),
               .type = c.type,
               .op = c.op,
               .root = c.root,
               .count = c.count,
               .counts = c.counts,
               .receive_counts = c.receive_counts,
               .in = c.in,
               .out = c.out};
  const auto all = c.counts.empty() ? std::int64_t{0} : total(c.counts);
  const auto own = c.counts.empty() ? std::int64_t{0} : c.counts[index(rank_)];
  std::int64_t in = c.count, out = c.count;
  switch (c.kind) {
    case CollectiveKind::broadcast: call.share = broadcast_share, call.in = c.out; break;
    case CollectiveKind::reduce: call.share = reduce_share, out = rank_ == c.root ? out : 0; break;
    case CollectiveKind::allreduce: call.share = allreduce_share; break;
    case CollectiveKind::allgather: call.share = allgather_share, in = own, out = all; break;
    case CollectiveKind::reduce_scatter: call.share = reduce_scatter_share, in = all, out = own; break;
    case CollectiveKind::alltoall: call.share = alltoall_share, in = all, out = total(c.receive_counts); break;
  }
  call.in_bytes = in * size_of(c.type), call.out_bytes = out * size_of(c.type);
  return std::make_unique<StartedCollective>(group_, group_->start(rank_, started_++, call), rank_);
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
