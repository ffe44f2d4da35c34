// One rank thread's end of a Group.

#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "comm/transport/threads/rank_transport.h"

namespace mpigrad::threads {
namespace {

using namespace transport_checks;

class ThreadsTransport final : public RankTransport {
 public:
  ThreadsTransport(std::shared_ptr<Group> group, int rank) : RankTransport(rank, group->size(), true), group_(std::move(group)) {}

  Pending begin(const Collective& call) override;
  Pending start_receive(const Message& message, DType type) override;

 private:
  // The code between enter and leave reads memory of other ranks and must not throw. All ranks enter and leave even when their
  // calls differ, so that the error is the same everywhere and the next call finds the group in a valid state.
  void meet(const Call& call) override {
    const auto calls = group_->enter(rank(), call);
    const std::string problem = disagreement(calls);
    if (problem.empty()) do_share(calls, rank());
    group_->leave();
    if (!problem.empty()) throw Error(problem);
  }
  void send(const Message& message, DType type) override { group_->deliver(message.peer, envelope(message, type)); }
  std::shared_ptr<Transport> child(std::span<const int> ranks, std::uint64_t ordinal, int place) override {
    return std::make_shared<ThreadsTransport>(group_->child(ranks, ordinal), place);
  }

  std::shared_ptr<Group> group_;
  std::uint64_t started_ = 0;
};

// ---- pending operations

// A posted receive; its message is checked against the expected one.
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
      // One lock for both: the exception that is rethrown is the one that the other ranks report.
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
    if (ranks > 1) world->end(rank);  // no rank waits for the only one, whose transport may be used on
  };

  std::vector<std::thread> threads;
  try {
    for (int r = 0; r < ranks; ++r) threads.emplace_back(rank_main, r);
  } catch (const std::exception& error) {  // the system's limit on threads
    keep_first(static_cast<int>(threads.size()), error.what());
  }
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace mpigrad
