#pragma once
// What ranks of a simulation share: links, and subgrids that meet in collectives. Not installed.

#include <algorithm>
#include <vector>

#include "framework/error.h"
#include "models/planner/simulation/program.h"
#include "models/planner/step_time.h"

namespace mpigrad::planner {

// Of every rank, and between the units of all levels; simulate.h says which of them a message takes.
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

  // When a message that starts now, and takes place `times` times, is there. Without contention calls beside work (slot 1) and
  // calls in its way (slot 0) have links of their own.
  double arrival(const StepProgram::Message& message, int sender, int receiver, int slot, double times, double now) {
    const auto from = static_cast<std::size_t>(sender), to = static_cast<std::size_t>(receiver);
    const auto last = machine_.levels.size() - 1, own = contention_ ? std::size_t{0} : static_cast<std::size_t>(slot);
    std::size_t level = 0;
    while (level < last && units_[level][from] != units_[level][to]) ++level;
    const auto& link = machine_.levels[level];
    auto &out = out_[2 * from + own], &in = in_[2 * to + own];
    const double bytes = message.bytes * times;
    if (level == 0) {
      const bool known = message.within >= 0;
      const double seconds = known ? message.within * times : bytes * link.sharing / link.bandwidth;
      return std::max(out.take(now, seconds), in.take(now, seconds)) + (known ? 0 : link.latency * times);
    }
    const double alone = bytes / link.bandwidth;
    double through = std::max(out.take(now, alone), in.take(now, alone));
    if (contention_) {
      const double together = alone * link.sharing / machine_.levels[level - 1].ranks;
      auto& up = up_[level - 1][static_cast<std::size_t>(units_[level - 1][from])];
      auto& down = down_[level - 1][static_cast<std::size_t>(units_[level - 1][to])];
      through = std::max({through, up.take(now, together), down.take(now, together)});
    }
    return through + link.latency * times;
  }

 private:
  struct Link {
    double free = 0;
    // One message behind the other; returns when this one is through.
    double take(double now, double seconds) { return free = std::max(free, now) + seconds; }
  };
  const Machine& machine_;
  bool contention_;
  std::vector<Link> out_, in_;                // 2 * rank + slot
  std::vector<std::vector<int>> units_;       // by level, of each rank
  std::vector<std::vector<Link>> up_, down_;  // of these units, to the level above
};

// All subgrids in which ranks meet for the collectives of a program.
class Subgrids {
 public:
  struct Group {
    int calls = 0;             // of the program
    int first = 0, count = 0;  // ranks: places in members()
    double seconds = 0;        // that the collective takes
  };

  Subgrids(const StepProgram& program, const Machine& machine, int ranks, int node_ranks) {
    for (std::size_t c = 0; c < program.calls.size(); ++c) {
      auto& list = of_rank_.emplace_back();
      for (const auto& collective : program.calls[c].collectives) {
        auto& of_rank = list.emplace_back(static_cast<std::size_t>(ranks), -1);
        for (int rank = 0; rank < ranks; ++rank) {
          if (of_rank[static_cast<std::size_t>(rank)] >= 0) continue;
          std::vector<int> members{rank};
          for (const auto& digit : collective.digits) {
            const auto known = members.size();
            for (int i = 1; i < digit.count; ++i)
              for (std::size_t m = 0; m < known; ++m) members.push_back(members[m] + i * digit.stride);
          }
          for (const int member : members) {
            require(member < ranks && of_rank[static_cast<std::size_t>(member)] < 0,
                    "[simulate] {}: subgrids of {} ranks do not make up all {}", collective.call.call, members.size(), ranks);
            of_rank[static_cast<std::size_t>(member)] = static_cast<int>(groups_.size());
          }
          Group group{.calls = static_cast<int>(c),
                      .first = static_cast<int>(members_.size()),
                      .count = static_cast<int>(members.size())};
          members_.insert(members_.end(), members.begin(), members.end());
          auto call = collective.call;
          call.ranks = std::make_shared<const std::vector<int>>(std::move(members));
          group.seconds = collective_seconds(call, machine, node_ranks) * program.calls[c].times;
          groups_.push_back(group);
        }
      }
    }
  }

  std::size_t size() const { return groups_.size(); }
  const Group& operator[](std::size_t group) const { return groups_[group]; }
  const std::vector<int>& members() const { return members_; }
  // By collective of these calls and by rank.
  const std::vector<std::vector<int>>& of(int calls) const { return of_rank_[static_cast<std::size_t>(calls)]; }

 private:
  std::vector<std::vector<std::vector<int>>> of_rank_;
  std::vector<Group> groups_;
  std::vector<int> members_;
};

}  // namespace mpigrad::planner
