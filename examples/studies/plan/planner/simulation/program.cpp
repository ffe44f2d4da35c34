#include "examples/studies/plan/planner/simulation/program.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "examples/studies/plan/planner/machine/op_times.h"
#include "framework/base/error.h"

namespace mpigrad::planner {
namespace {

using Digits = std::vector<StepProgram::Digit>;

GridPlace negative(GridPlace offset) {
  for (auto& along : offset) along = -along;
  return offset;
}

// The digits of an ascending list of ranks that is a subgrid of some grid: its axes, the innermost first. Empty: it is not a
// subgrid.
Digits digits_of(const std::vector<int>& ranks) {
  Digits digits;
  const auto n = ranks.size();
  // The first `known` ranks differ in the digits found so far.
  for (std::size_t known = 1; known < n;) {
    const int stride = ranks[known] - ranks[0];
    std::size_t count = 2;
    const auto begins = [&](std::size_t i) { return ranks[i * known] == ranks[0] + static_cast<int>(i) * stride; };
    while ((count + 1) * known <= n && begins(count)) ++count;
    if (stride <= 0 || (ranks[0] / stride) % static_cast<int>(count) != 0) return {};
    digits.push_back({stride, static_cast<int>(count)});
    known *= count;
    if (n % known != 0) return {};
  }
  for (std::size_t i = 0; i < n; ++i) {
    int rank = ranks[0];
    auto rest = static_cast<int>(i);
    for (const auto& digit : digits) rank += rest % digit.count * digit.stride, rest /= digit.count;
    if (rank != ranks[i]) return {};
  }
  return digits;
}

// The measurement of messages between two ranks of a node, or null.
const MeasuredCall* measured_exchange(const Machine& machine) {
  const auto found = std::find_if(machine.calls.begin(), machine.calls.end(),
                                  [](const MeasuredCall& call) { return call.call == "exchange" && call.ranks == 2; });
  return found == machine.calls.end() ? nullptr : &*found;
}

// The messages of one event in one direction; calls f(call, seconds within a node or -1) for each.
template <class F>
void for_messages(const StepEvent& event, bool sends, int rank, const Machine& machine, const F& f) {
  const auto* measured = measured_exchange(machine);
  const auto is_one = [&](const DryRecord& call) {
    return call.what == (sends ? DryRecord::What::send : DryRecord::What::receive) && call.peer != rank;
  };
  double together = 0;
  for (const auto& call : event.calls)
    if (is_one(call) && machine.level_between(rank, call.peer) == 0) together += static_cast<double>(call.bytes);
  for (const auto& call : event.calls) {
    if (!is_one(call)) continue;
    const auto bytes = static_cast<double>(call.bytes);
    double within = -1;
    if (measured && call.bytes == 0) within = 0;
    else if (measured && machine.level_between(rank, call.peer) == 0) within = measured->seconds(together) * bytes / together;
    else if (measured) within = measured->seconds(bytes);
    f(call, within);
  }
}

// The messages of one event, each with both ends.
class Messages {
 public:
  Messages(const StepEvent& event, int rank, const GridExtents& grid, const Machine& machine) {
    const auto here = place_of(rank, grid);
    for (const bool sends : {true, false})
      for_messages(event, sends, rank, machine, [&](const DryRecord& call, double within) {
        const auto there = place_of(call.peer, grid);
        StepProgram::Message message{.bytes = static_cast<double>(call.bytes), .within = within};
        for (std::size_t a = 0; a < here.size(); ++a) message.offset[a] = there[a] - here[a];
        if (!sends) message.offset = negative(message.offset);
        add(message, sends);
      });
  }
  std::vector<StepProgram::Message> take() { return std::move(messages_); }

 private:
  // If a message with this offset has been seen with only its other end, this is the same message.
  void add(const StepProgram::Message& message, bool sends) {
    for (std::size_t i = 0; !sends && i < messages_.size(); ++i) {
      if (messages_[i].offset != message.offset || whole_[i]) continue;
      messages_[i].bytes = std::max(messages_[i].bytes, message.bytes);
      messages_[i].within = std::max(messages_[i].within, message.within);
      whole_[i] = true;
      return;
    }
    messages_.push_back(message), whole_.push_back(!sends);
  }

  std::vector<StepProgram::Message> messages_;
  std::vector<bool> whole_;
};

// `own`: with ends of messages, for a program of this rank only.
StepProgram::Calls calls_of(const StepEvent& event, int rank, const GridExtents& grid, const Machine& machine, bool own) {
  StepProgram::Calls calls{.op = std::string(event.op), .phase = event.phase, .layer = event.layer, .times = event.times};
  if (own) {
    for (const bool sends : {true, false})
      for_messages(event, sends, rank, machine, [&](const DryRecord& call, double within) {
        calls.ends.push_back({call.peer - rank, -1, static_cast<double>(call.bytes), within, sends});
      });
  } else {
    calls.messages = Messages(event, rank, grid, machine).take();
  }
  if (event.op == "redistribute") calls.kind = StepProgram::Kind::redistribution;
  for (const auto& call : event.calls) {
    if (call.is_message()) continue;
    calls.kind = StepProgram::Kind::collective;
    if (!call.ranks || call.ranks->size() < 2) continue;
    auto members = *call.ranks;
    std::sort(members.begin(), members.end());
    auto digits = digits_of(members);
    require(!digits.empty() && members.back() < ranks_of(grid),
            "[simulate] {}: {} ranks from {} to {} are no subgrid of {} ranks", call.name(), members.size(), members.front(),
            members.back(), ranks_of(grid));
    calls.collectives.push_back({call, std::move(digits)});
  }
  return calls;
}

StepProgram made(const StepTrace& step, int rank, const GridExtents& grid, const Machine& machine, const OpTimes& ops, bool own) {
  StepProgram program;
  for (const auto& layer : step.layers) program.layers.push_back(layer.name);
  using Do = StepProgram::Item::Do;
  const auto compute = [&](const StepEvent& event, double seconds) {
    const bool same = !program.items.empty() && program.items.back().what == Do::compute &&
                      program.computes.back().phase == event.phase && program.computes.back().layer == event.layer;
    if (!same) {
      program.items.push_back({Do::compute, static_cast<int>(program.computes.size())});
      program.computes.push_back({.phase = event.phase, .layer = event.layer});
    }
    auto& all = program.computes.back();
    all.seconds += seconds * event.times;
    all.spread = std::hypot(all.spread, seconds * std::sqrt(event.times));
  };
  // In the same order as time_step().
  std::vector<std::pair<bool, int>> under_way;  // started, not waited for: of gradients or not, and its ordinal
  int started = 0;
  for (const auto& event : step.events) {
    if (!event.calls.empty()) {
      if (!event.communicates) {
        const bool messages =
            std::all_of(event.calls.begin(), event.calls.end(), [](const DryRecord& call) { return call.is_message(); });
        under_way.emplace_back(!messages, started++);
      }
      program.items.push_back({event.communicates ? Do::run : Do::start, static_cast<int>(program.calls.size())});
      program.calls.push_back(calls_of(event, rank, grid, machine, own));
    }
    if (event.waits) {
      const auto found = std::find_if(under_way.begin(), under_way.end(),
                                      [&](const auto& call) { return call.first == (event.op == waits_for_reduction); });
      if (found == under_way.end()) continue;
      program.items.push_back({Do::wait, found->second});
      under_way.erase(found);
      continue;
    }
    if (!has_work(event)) continue;
    if (event.communicates) {
      compute(event, ops.roof(packing_of(event)));
    } else {
      compute(event, ops.of(event).seconds);
    }
  }
  return program;
}

// Connects both ends of every message and gives them the same time. False: some messages go to ranks without a program.
bool join(std::vector<StepProgram>& programs) {
  // Messages between a sender and a receiver, in the order of each of them.
  struct Known {
    StepProgram::End* end = nullptr;
    int calls = 0;
  };
  std::map<std::pair<int, int>, std::array<std::vector<Known>, 2>> messages;
  const int count = static_cast<int>(programs.size());
  for (int rank = 0; rank < count; ++rank) {
    auto& program = programs[static_cast<std::size_t>(rank)];
    for (std::size_t c = 0; c < program.calls.size(); ++c)
      for (auto& end : program.calls[c].ends) {
        const int other = rank + end.distance;
        if (other < 0 || other >= count) return false;
        const auto ranks = end.sends ? std::pair(rank, other) : std::pair(other, rank);
        messages[ranks][end.sends ? 0 : 1].push_back({&end, static_cast<int>(c)});
      }
  }
  for (auto& [ranks, ends] : messages) {
    auto& [sent, received] = ends;
    require(sent.size() == received.size(), "[simulate] rank {} sends {} messages to rank {}, which receives {}", ranks.first,
            sent.size(), ranks.second, received.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
      auto &from = *sent[i].end, &to = *received[i].end;
      from.calls = received[i].calls, to.calls = sent[i].calls;
      from.bytes = to.bytes = std::max(from.bytes, to.bytes);
      from.within = to.within = std::max(from.within, to.within);
    }
  }
  return true;
}

void check(const GridExtents& grid, const Machine& machine) {
  require(!machine.levels.empty() && ranks_of(grid) <= machine.ranks(), "[simulate] machine {} has {} ranks, the grid {}",
          machine.name, machine.levels.empty() ? 0 : machine.ranks(), ranks_of(grid));
}

OpTimes times_of(const Machine& machine, int node_ranks, bool tf32) {
  return OpTimes(machine, node_ranks > 0 ? node_ranks : machine.levels.front().ranks, tf32);
}

}  // namespace

int representative_rank(const GridExtents& grid) {
  const auto extents = extents_of(grid);
  int rank = 0;
  for (const int extent : extents) rank = rank * extent + (extent > 2 ? 1 : 0);
  return rank;
}

StepProgram program_of(const StepTrace& step, int rank, const GridExtents& grid, const Machine& machine, int node_ranks,
                       bool tf32) {
  check(grid, machine);
  require(rank >= 0 && rank < ranks_of(grid), "[simulate] a grid of {} ranks has no rank {}", ranks_of(grid), rank);
  return made(step, rank, grid, machine, times_of(machine, node_ranks, tf32), false);
}

std::vector<StepProgram> programs_of(const std::function<StepTrace(int rank)>& trace, int repeating, const GridExtents& grid,
                                     const Machine& machine, int node_ranks, bool tf32) {
  check(grid, machine);
  const int ranks = ranks_of(grid);
  require(repeating >= 1 && ranks % repeating == 0, "[simulate] {} ranks do not repeat what {} do", ranks, repeating);
  const auto ops = times_of(machine, node_ranks, tf32);
  std::vector<StepProgram> programs;
  for (const int wanted : {repeating, ranks}) {
    programs.clear();
    for (int rank = 0; rank < wanted; ++rank) programs.push_back(made(trace(rank), rank, grid, machine, ops, true));
    if (join(programs)) return programs;
  }
  fail("[simulate] a rank sends to one that {} ranks do not have", ranks);
}

int repeating_ranks(const std::vector<GridExtents>& grids, std::int64_t batch) {
  int groups = grids.front().sample;
  for (const auto& grid : grids) {
    if (batch % grid.sample != 0) return ranks_of(grid);
    groups = std::gcd(groups, grid.sample);
  }
  return ranks_of(grids.front()) / groups;
}

}  // namespace mpigrad::planner
