// Rank r of P without the others: every call is logged and moves nothing.

#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "comm/transport/transport_checks.h"

namespace mpigrad {
namespace {

using namespace transport_checks;

class Done final : public PendingReceive {
 public:
  Done() = default;
  explicit Done(Status status) : status_(status) {}
  void wait() override {}
  bool test() override { return true; }
  void cancel() override {}
  Status status() const override { return status_; }

 private:
  Status status_;
};

class DryTransport final : public Transport {
 public:
  // members: ranks of the dry world, in order of this communicator's ranks.
  DryTransport(int rank, std::vector<int> members, std::shared_ptr<std::vector<DryRecord>> log)
      : rank_(rank), members_(std::move(members)), log_(std::move(log)) {
    // FNV-1a over the members; the order counts.
    hash_ = 14695981039346656037ull;
    for (int member : members_) hash_ = (hash_ ^ static_cast<std::uint64_t>(member)) * 1099511628211ull;
  }

  std::string_view name() const override { return "dry"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  int node_rank() const override { return 0; }
  int node_size() const override { return 1; }

  void barrier() override { record("barrier", 0); }

  void broadcast(void*, std::int64_t count, DType type, int root) override {
    check_count("broadcast", count);
    record("broadcast", rank_ == root ? count * size_of(type) : 0, root);
  }

  void allreduce(const void*, void*, std::int64_t count, DType type, Reduction op) override {
    check_count("allreduce", count);
    check_reduction("allreduce", type, op);
    record("allreduce", count * size_of(type));
  }

  void reduce(const void*, void*, std::int64_t count, DType type, Reduction op, int root) override {
    check_count("reduce", count);
    check_reduction("reduce", type, op);
    record("reduce", count * size_of(type), root);
  }

  void gather(const void*, void*, std::span<const std::int64_t> counts, DType type, int root) override {
    check_counts("gather", counts, size());
    record("gather", counts[static_cast<std::size_t>(rank_)] * size_of(type), root);
  }

  void scatter(const void*, void*, std::span<const std::int64_t> counts, DType type, int root) override {
    check_counts("scatter", counts, size());
    record("scatter", rank_ == root ? total(counts) * size_of(type) : 0, root);
  }

  void allgather(const void*, void*, std::span<const std::int64_t> counts, DType type) override {
    check_counts("allgather", counts, size());
    record("allgather", counts[static_cast<std::size_t>(rank_)] * size_of(type));
  }

  void reduce_scatter(const void*, void*, std::span<const std::int64_t> counts, DType type, Reduction op) override {
    check_counts("reduce_scatter", counts, size());
    check_reduction("reduce_scatter", type, op);
    record("reduce_scatter", total(counts) * size_of(type));
  }

  void alltoall(const void*, std::span<const std::int64_t> send_counts, void*, std::span<const std::int64_t> receive_counts,
                DType type) override {
    check_counts("alltoall", send_counts, size());
    check_counts("alltoall", receive_counts, size());
    record("alltoall", total(send_counts) * size_of(type));
  }

  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    check_messages(sends, size(), max_tag());
    check_messages(receives, size(), max_tag());
    for (const auto& message : sends) record("send", message.count * size_of(type), message.peer, message.tag);
    for (const auto& message : receives) record("receive", message.count * size_of(type), message.peer, message.tag);
  }

  std::unique_ptr<PendingOperation> start_exchange(std::span<const Message> sends, std::span<const Message> receives,
                                                   DType type) override {
    exchange(sends, receives, type);
    return std::make_unique<Done>();
  }

  std::unique_ptr<PendingReceive> start_receive(const Message& message, DType type) override {
    require(message.peer != any_source && message.tag != any_tag,
            "[receive] the dry transport cannot know who sends: name source and tag");
    exchange({}, {&message, 1}, type);
    return std::make_unique<Done>(Status{message.peer, message.tag});
  }

  std::unique_ptr<PendingOperation> start(const Collective& c) override {
    check_collective(c, size());
    switch (c.kind) {
      case CollectiveKind::broadcast: broadcast(c.out, c.count, c.type, c.root); break;
      case CollectiveKind::reduce: reduce(c.in, c.out, c.count, c.type, c.op, c.root); break;
      case CollectiveKind::allreduce: allreduce(c.in, c.out, c.count, c.type, c.op); break;
      case CollectiveKind::allgather: allgather(c.in, c.out, c.counts, c.type); break;
      case CollectiveKind::reduce_scatter: reduce_scatter(c.in, c.out, c.counts, c.type, c.op); break;
      case CollectiveKind::alltoall: alltoall(c.in, c.counts, c.out, c.receive_counts, c.type); break;
    }
    return std::make_unique<Done>();
  }

  std::shared_ptr<Transport> subgroup(std::span<const int> ranks) override {
    const int place = check_subgroup(ranks, rank_, size());
    std::vector<int> members;
    for (int rank : ranks) members.push_back(members_[static_cast<std::size_t>(rank)]);
    return std::make_shared<DryTransport>(place, std::move(members), log_);
  }

  std::shared_ptr<Transport> split(int, int) override {
    fail("[split] the dry transport cannot ask the other ranks for their colours: use subgroup");
  }

  std::shared_ptr<Transport> duplicate() override { return std::make_shared<DryTransport>(rank_, members_, log_); }

  void abort(int code) override {
    std::fflush(nullptr);
    std::_Exit(code == 0 ? 1 : code);
  }

 private:
  // peer: of this communicator, or -1.
  void record(std::string_view call, std::int64_t bytes, int peer = -1, int tag = 0) {
    if (peer != -1) check_rank(call, "rank", peer, size());
    if (!log_) return;
    log_->push_back({.call = call,
                     .peer = peer < 0 ? -1 : members_[static_cast<std::size_t>(peer)],
                     .tag = tag,
                     .bytes = bytes,
                     .members = hash_});
  }

  int rank_;
  std::vector<int> members_;
  std::shared_ptr<std::vector<DryRecord>> log_;
  std::uint64_t hash_ = 0;
};

}  // namespace

std::shared_ptr<Transport> dry_world(int rank, int size, std::shared_ptr<std::vector<DryRecord>> log) {
  require(size >= 1 && rank >= 0 && rank < size, "[dry_world] rank {} of {} does not exist", rank, size);
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return std::make_shared<DryTransport>(rank, std::move(members), std::move(log));
}

}  // namespace mpigrad
