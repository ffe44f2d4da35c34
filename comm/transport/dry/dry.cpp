// The dry transport: rank r of P without the other ranks; every call is logged and moves nothing.

#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "framework/base/fnv.h"

#include "comm/transport/basic_transport.h"
#include "comm/transport/transport_checks.h"

namespace mpigrad {
namespace {

using namespace transport_checks;

class Done final : public PendingWork {
 public:
  explicit Done(Status status = {}) : status_(status) {}
  void wait() override {}
  bool test() override { return true; }
  Status status() const override { return status_; }

 private:
  Status status_;
};

class DryTransport final : public BasicTransport {
 public:
  using Members = std::shared_ptr<const std::vector<int>>;
  // members: ranks of the dry world, in the order of this communicator's ranks.
  DryTransport(int rank, Members members, std::shared_ptr<std::vector<DryRecord>> log)
      : BasicTransport({.name = "dry", .rank = rank, .size = static_cast<int>(members->size()), .can_ask = false}),
        members_(std::move(members)), log_(std::move(log)) {
    // FNV-1a over the members; the order counts.
    hash_ = fnv_start;
    for (int member : *members_) hash_ = fnv1a(hash_, static_cast<std::uint64_t>(member));
  }

  void perform(const Collective& call) override { record(call, false); }
  Pending begin(const Collective& call) override {
    record(call, true);
    return pending<Done>();
  }

  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    record(sends, receives, type, false);
  }
  Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    record(sends, receives, type, true);
    return pending<Done>();
  }

  Pending start_receive(const Message& message, DType type) override {
    require(message.peer != any_source && message.tag != any_tag,
            "[receive] the dry transport cannot know who sends: name source and tag");
    start_exchange({}, {&message, 1}, type);
    return pending<Done>(Status{message.peer, message.tag});
  }

  std::shared_ptr<Transport> subgroup(std::span<const int> ranks) override {
    const int place = check_subgroup(ranks, rank(), size());
    std::vector<int> members;
    members.reserve(ranks.size());
    for (int rank : ranks) members.push_back((*members_)[static_cast<std::size_t>(rank)]);
    return std::make_shared<DryTransport>(place, std::make_shared<const std::vector<int>>(std::move(members)), log_);
  }

  std::shared_ptr<Transport> split(int, int) override {
    fail("[split] the dry transport cannot ask the other ranks for their colours: use subgroup");
  }

  std::shared_ptr<Transport> duplicate() override { return std::make_shared<DryTransport>(rank(), members_, log_); }

  void abort(int code) override {
    std::fflush(nullptr);
    std::_Exit(code == 0 ? 1 : code);
  }

 private:
  void record(const Collective& call, bool started) {
    record({.kind = call.kind, .bytes = moved_elements(call, rank()).in * size_of(call.type), .started = started}, call.root);
  }
  void record(std::span<const Message> sends, std::span<const Message> receives, DType type, bool started) {
    check_messages(sends, size(), max_tag());
    check_messages(receives, size(), max_tag());
    using What = DryRecord::What;
    for (const auto& [what, messages] : {std::pair{What::send, sends}, {What::receive, receives}})
      for (const auto& m : messages)
        record({.what = what, .tag = m.tag, .bytes = m.count * size_of(type), .started = started}, m.peer);
  }
  // peer: a rank of this communicator, or -1.
  void record(DryRecord call, int peer) {
    if (!log_) return;
    if (peer >= 0) call.peer = (*members_)[static_cast<std::size_t>(peer)];
    call.members = hash_, call.ranks = members_;
    log_->push_back(std::move(call));
  }

  Members members_;
  std::shared_ptr<std::vector<DryRecord>> log_;
  std::uint64_t hash_ = 0;
};

}  // namespace

std::shared_ptr<Transport> dry_world(int rank, int size, std::shared_ptr<std::vector<DryRecord>> log) {
  require(size >= 1 && rank >= 0 && rank < size, "[dry_world] rank {} of {} does not exist", rank, size);
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return std::make_shared<DryTransport>(rank, std::make_shared<const std::vector<int>>(std::move(members)), std::move(log));
}

}  // namespace mpigrad
