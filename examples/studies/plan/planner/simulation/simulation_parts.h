#pragma once
// Objects that the ranks of a simulation share: links, and subgrids for collectives. Not installed.

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "examples/studies/plan/planner/simulation/program.h"
#include "examples/studies/plan/planner/step_time.h"
#include "framework/base/error.h"

namespace mpigrad::planner {

// Links of every rank, and between the units of all levels; simulate.h says which of them a message takes.
class SharedLinks {
 public:
  SharedLinks(const Machine& machine, int ranks, bool contention) : machine_(machine), contention_(contention) {
    const auto size = static_cast<std::size_t>(ranks);
    out_.resize(2 * size), in_.resize(2 * size);
    for (std::size_t level = 0; level + 1 < machine.levels.size(); ++level) {
      const int inner = machine.levels[level].ranks;
      auto& units = units_.emplace_back(size);
      for (int rank = 0; rank < ranks; ++rank) units[static_cast<std::size_t>(rank)] = rank / inner;
      up_.emplace_back(size / static_cast<std::size_t>(inner) + 1),
          down_.emplace_back(size / static_cast<std::size_t>(inner) + 1);
    }
  }

  // The arrival time of a message that starts now, with `size` bytes (or `within` seconds on the innermost link), repeated
  // `times` times. Without contention started calls (slot 1) and calls that a rank waits for (slot 0) have separate links.
  double arrival(double size, double within, int sender, int receiver, int slot, double times, double now) {
    const auto from = static_cast<std::size_t>(sender), to = static_cast<std::size_t>(receiver);
    const auto last = machine_.levels.size() - 1, own = contention_ ? std::size_t{0} : static_cast<std::size_t>(slot);
    std::size_t level = 0;
    while (level < last && units_[level][from] != units_[level][to]) ++level;
    const auto& link = machine_.levels[level];
    auto &out = out_[2 * from + own], &in = in_[2 * to + own];
    const double bytes = size * times;
    if (level == 0) {
      const bool known = within >= 0;
      const double seconds = known ? within * times : bytes * link.sharing / link.bandwidth;
      return std::max(out.take(now, seconds), in.take(now, seconds)) + (known ? 0 : link.latency * times);
    }
    const double unshared = bytes / link.bandwidth;
    double through = std::max(out.take(now, unshared), in.take(now, unshared));
    if (contention_) {
      const double together = unshared * link.sharing / machine_.levels[level - 1].ranks;
      auto& up = up_[level - 1][static_cast<std::size_t>(units_[level - 1][from])];
      auto& down = down_[level - 1][static_cast<std::size_t>(units_[level - 1][to])];
      through = std::max({through, up.take(now, together), down.take(now, together)});
    }
    return through + link.latency * times;
  }

 private:
  struct Link {
    double free = 0;
    // Messages pass one after the other; returns when this one has passed.
    double take(double now, double seconds) { return free = std::max(free, now) + seconds; }
  };
  const Machine& machine_;
  bool contention_;
  std::vector<Link> out_, in_;                // 2 * rank + slot
  std::vector<std::vector<int>> units_;       // by level: the unit of each rank
  std::vector<std::vector<Link>> up_, down_;  // of these units, to the level above
};

// All subgrids in which ranks take part in the collectives of their programs; program number rank % n of n. For collectives with
// equal digits the ranks of a subgrid take part in the first call that each of them has, then in the second, and so on.
class Subgrids {
 public:
  struct Group {
    int first = 0, count = 0;  // ranks: places in members()
    double bytes = 0;          // that a rank contributes, at most
    double seconds = 0;        // duration of the collective
    bool started = false;      // and waited for later
  };

  Subgrids(const std::vector<StepProgram>& programs, const Machine& machine, int ranks, int node_ranks)
      : machine_(machine), ranks_(ranks), node_ranks_(node_ranks) {
    for (const auto& program : programs) meetings_of(program);
    for (int rank = 0; rank < ranks; ++rank) {
      auto& own = of_rank_.emplace_back();
      for (const auto& meeting : of_program_[static_cast<std::size_t>(rank) % programs.size()]) {
        int lowest = rank;
        for (const auto& digit : meeting.collective->digits) lowest -= rank / digit.stride % digit.count * digit.stride;
        int& group = by_lowest_[meeting.kind][static_cast<std::size_t>(lowest)];
        if (group < 0) group = made(lowest, meeting);
        own.push_back(group);
        slowed(groups_[static_cast<std::size_t>(group)], meeting);
      }
    }
  }

  std::size_t size() const { return groups_.size(); }
  const Group& operator[](std::size_t group) const { return groups_[group]; }
  const std::vector<int>& members() const { return members_; }
  // The subgrids of a rank for these calls, one after the other.
  std::span<const int> of(int rank, int calls) const {
    const auto r = static_cast<std::size_t>(rank), c = static_cast<std::size_t>(calls);
    const auto& first = first_[r % first_.size()];
    return std::span(of_rank_[r]).subspan(first[c], first[c + 1] - first[c]);
  }

 private:
  struct Meeting {
    const StepProgram::Meeting* collective = nullptr;
    std::size_t kind = 0;  // digits, and their ordinal
    double times = 1;
    bool started = false;
  };

  void meetings_of(const StepProgram& program) {
    std::vector<bool> started(program.calls.size(), false);
    for (const auto& item : program.items)
      if (item.what == StepProgram::Item::Do::start) started[static_cast<std::size_t>(item.index)] = true;
    auto& first = first_.emplace_back(1, std::size_t{0});
    auto& meetings = of_program_.emplace_back();
    std::map<Digits, std::size_t> been;
    for (std::size_t c = 0; c < program.calls.size(); ++c) {
      for (const auto& collective : program.calls[c].collectives) {
        Digits digits;
        for (const auto& digit : collective.digits) digits.emplace_back(digit.stride, digit.count);
        const auto kind = kinds_.try_emplace({digits, been[digits]++}, kinds_.size()).first->second;
        if (kind == by_lowest_.size()) by_lowest_.emplace_back(static_cast<std::size_t>(ranks_), -1);
        meetings.push_back({&collective, kind, program.calls[c].times, started[c]});
      }
      first.push_back(meetings.size());
    }
  }

  int made(int lowest, const Meeting& meeting) {
    std::vector<int> members{lowest};
    for (const auto& digit : meeting.collective->digits) {
      const auto known = members.size();
      for (int i = 1; i < digit.count; ++i)
        for (std::size_t m = 0; m < known; ++m) members.push_back(members[m] + i * digit.stride);
    }
    for (const int member : members)
      require(member < ranks_, "[simulate] {}: subgrids of {} ranks do not make up all {}", meeting.collective->call.name(),
              members.size(), ranks_);
    groups_.push_back({.first = static_cast<int>(members_.size()),
                       .count = static_cast<int>(members.size()),
                       .bytes = -1,
                       .started = meeting.started});
    members_.insert(members_.end(), members.begin(), members.end());
    return static_cast<int>(groups_.size()) - 1;
  }

  // The duration is that for the most bytes that one of its ranks contributes.
  void slowed(Group& group, const Meeting& meeting) {
    auto call = meeting.collective->call;
    if (static_cast<double>(call.bytes) <= group.bytes) return;
    group.bytes = static_cast<double>(call.bytes);
    const auto first = members_.begin() + group.first;
    call.ranks = std::make_shared<const std::vector<int>>(first, first + group.count);
    group.seconds = std::max(group.seconds, collective_seconds(call, machine_, node_ranks_) * meeting.times);
  }

  using Digits = std::vector<std::pair<int, int>>;
  const Machine& machine_;
  int ranks_, node_ranks_;
  std::map<std::pair<Digits, std::size_t>, std::size_t> kinds_;
  std::vector<std::vector<int>> by_lowest_;  // by kind and lowest rank: the group, or -1
  std::vector<std::vector<std::size_t>> first_;
  std::vector<std::vector<Meeting>> of_program_;
  std::vector<std::vector<int>> of_rank_;
  std::vector<Group> groups_;
  std::vector<int> members_;
};

}  // namespace mpigrad::planner
