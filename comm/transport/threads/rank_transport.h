#pragma once
// One rank's end of a communicator inside one process: functions shared by ranks that are threads and ranks that take turns on
// one thread (examples/site/browser/turns.h).

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "comm/transport/basic_transport.h"
#include "comm/transport/threads/group.h"
#include "comm/transport/transport_checks.h"

namespace mpigrad::threads {

class RankTransport : public BasicTransport {
 public:
  void perform(const Collective& call) override { meet({call, name_of(call.kind)}); }

  Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    transport_checks::check_messages(sends, size(), max_tag());
    transport_checks::check_messages(receives, size(), max_tag());
    std::vector<Pending> all;
    for (const auto& message : receives) all.push_back(start_receive(message, type));
    for (const auto& message : sends) send(message, type);
    return pending<Receives>(std::move(all));
  }

  std::shared_ptr<Transport> subgroup(std::span<const int> ranks) override {
    const int place = transport_checks::check_subgroup(ranks, rank(), size());
    return child(ranks, children_made_[{ranks.begin(), ranks.end()}]++, place);
  }
  std::shared_ptr<Transport> split(int color, int key) override {
    const std::array<int, 2> mine = {color, key};
    std::vector<std::array<int, 2>> all(static_cast<std::size_t>(size()));
    const std::vector<std::int64_t> counts(all.size(), sizeof(mine));
    meet({{.kind = CollectiveKind::allgather, .in = mine.data(), .out = all.data(), .counts = counts}, "split"});
    if (color < 0) return nullptr;
    return subgroup(transport_checks::ranks_of_color(all, color));
  }
  std::shared_ptr<Transport> duplicate() override {
    std::vector<int> ranks(static_cast<std::size_t>(size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return subgroup(ranks);
  }

  void abort(int code) override {
    std::fflush(nullptr);
    std::_Exit(code == 0 ? 1 : code);
  }

 protected:
  // in_one_process: true if the ranks read each other's memory while they run.
  RankTransport(int rank, int size, bool in_one_process)
      : BasicTransport({.name = "threads",
                        .rank = rank,
                        .size = size,
                        .node_rank = rank,
                        .node_size = size,
                        .in_one_process = in_one_process}) {}

  // A blocking collective call.
  virtual void meet(const Call& call) = 0;
  virtual void send(const Message& message, DType type) = 0;
  // The communicator made by the ordinal-th such call of `ranks`; this rank is their `place`-th.
  virtual std::shared_ptr<Transport> child(std::span<const int> ranks, std::uint64_t ordinal, int place) = 0;

  // A message of this rank in the form in which the receiver's mailbox stores it.
  Group::Envelope envelope(const Message& message, DType type) const {
    return {rank(), message.tag, copy_of(message.data, message.count * size_of(type)), message.count, type};
  }

 private:
  std::map<std::vector<int>, std::uint64_t> children_made_;
};

}  // namespace mpigrad::threads
