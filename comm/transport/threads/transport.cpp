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

#include "comm/transport/basic_transport.h"
#include "comm/transport/threads/group.h"
#include "comm/transport/transport_checks.h"

namespace mpigrad::threads {
namespace {

using namespace transport_checks;

class ThreadsTransport final : public BasicTransport {
 public:
  ThreadsTransport(std::shared_ptr<Group> group, int rank)
      : BasicTransport({.name = "threads",
                        .rank = rank,
                        .size = group->size(),
                        .node_rank = rank,
                        .node_size = group->size(),
                        .in_one_process = true}),
        group_(std::move(group)) {}

  void perform(const Collective& call) override { meet({call, name_of(call.kind)}); }
  Pending begin(const Collective& call) override;
  Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override;
  Pending start_receive(const Message& message, DType type) override;

  std::shared_ptr<Transport> subgroup(std::span<const int> ranks) override {
    const int place = check_subgroup(ranks, rank(), size());
    const std::vector<int> key(ranks.begin(), ranks.end());
    return std::make_shared<ThreadsTransport>(group_->child(ranks, subgroups_made_[key]++), place);
  }

  std::shared_ptr<Transport> split(int color, int key) override {
    const std::array<int, 2> mine = {color, key};
    std::vector<std::array<int, 2>> all(index(size()));
    const std::vector<std::int64_t> counts(index(size()), sizeof(mine));
    meet({{.kind = CollectiveKind::allgather, .in = mine.data(), .out = all.data(), .counts = counts}, "split"});
    if (color < 0) return nullptr;
    return subgroup(ranks_of_color(all, color));
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
  void meet(const Call& call) {
    const auto calls = group_->enter(rank(), call);
    const std::string problem = disagreement(calls);
    if (problem.empty()) do_share(calls, rank());
    group_->leave();
    if (!problem.empty()) throw Error(problem);
  }

  std::shared_ptr<Group> group_;
  std::uint64_t started_ = 0;
  std::map<std::vector<int>, std::uint64_t> subgroups_made_;
};

// ---- pending operations

// What a receive waits for, checked against what it expects.
class Receive final : public PendingWork {
 public:
  Receive(std::shared_ptr<Group> group, int rank, const Message& message, DType type)
      : group_(std::move(group)), rank_(rank), message_(message), type_(type),
        posted_(group_->post_receive(message.peer, rank, message.tag)) {}
  void wait() override { status_ = read_envelope(group_->take(rank_, posted_), message_, type_, rank_); }
  bool test() override { return group_->filled(*posted_); }
  void drop() noexcept override { group_->cancel(rank_, posted_); }
  Status status() const override { return status_; }

 private:
  std::shared_ptr<Group> group_;
  int rank_;
  Message message_;
  DType type_;
  std::shared_ptr<Group::Posted> posted_;
  Status status_;
};

class StartedCollective final : public PendingWork {
 public:
  StartedCollective(std::shared_ptr<Group> group, std::shared_ptr<Group::Started> started, int rank)
      : group_(std::move(group)), started_(std::move(started)), rank_(rank) {}
  void wait() override { group_->complete(*started_); }
  bool test() override { return group_->all_started(*started_); }
  void drop() noexcept override { group_->abandon(*started_, rank_); }

 private:
  std::shared_ptr<Group> group_;
  std::shared_ptr<Group::Started> started_;
  int rank_;
};

Pending ThreadsTransport::start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) {
  check_messages(sends, size(), max_tag());
  check_messages(receives, size(), max_tag());
  std::vector<Pending> all;
  for (const auto& message : receives) all.push_back(pending<Receive>(group_, rank(), message, type));
  for (const auto& message : sends) {
    Bytes copied = copy_of(message.data, message.count * size_of(type));
    group_->deliver(message.peer, {rank(), message.tag, std::move(copied), message.count, type});
  }
  return pending<Receives>(std::move(all));
}

Pending ThreadsTransport::start_receive(const Message& message, DType type) {
  check_receive(message, size(), max_tag());
  return pending<Receive>(group_, rank(), message, type);
}

Pending ThreadsTransport::begin(const Collective& call) {
  return pending<StartedCollective>(group_, group_->start(rank(), started_++, {call, traits_of(call.kind).nonblocking}), rank());
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
