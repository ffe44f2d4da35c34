#include "examples/studies/plan/planner/step_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "comm/collectives/collectives.h"
#include "examples/studies/plan/planner/formulas/collective_cost.h"
#include "framework/base/error.h"

namespace mpigrad::planner {
namespace {

// The link of a group's ring or tree: that of the outermost level it spans. The group's ranks in one unit of the next inner level
// share the unit's bandwidth, and all groups of the same kind send at once.
Link link_of(const std::vector<int>& ranks, const Machine& machine) {
  const auto [lowest, highest] = std::minmax_element(ranks.begin(), ranks.end());
  const int at = machine.level_between(*lowest, *highest);
  const auto& level = machine.levels[static_cast<std::size_t>(at)];
  double bandwidth = at == 0 ? level.bandwidth / level.sharing : machine.levels[0].bandwidth;
  // The path upwards passes links of units in which fewer ranks are of the group than send through the link.
  for (int outer = 1; outer <= at; ++outer) {
    const auto& link = machine.levels[static_cast<std::size_t>(outer)];
    const int unit = machine.levels[static_cast<std::size_t>(outer) - 1].ranks;
    std::map<int, int> members;
    for (const int rank : ranks) ++members[rank / unit];
    int together = unit;
    // A group of consecutive ranks that is longer than a unit shares only the units at its ends, and none if it begins with rank
    // 0, as all ranks of a job do.
    const bool consecutive = *highest - *lowest + 1 == std::ssize(ranks);
    const bool complete = std::any_of(members.begin(), members.end(), [&](const auto& each) { return each.second == unit; });
    const int least = !consecutive || !complete ? 1 : *lowest == 0 ? unit : (unit + 1) / 2;
    for (const auto& [number, count] : members) together = std::min(together, std::max(least, count));
    bandwidth = std::min(bandwidth, std::max(link.bandwidth / link.sharing * together, link.bandwidth / link.sharing));
  }
  return {.latency = level.latency, .seconds_per_byte = 1 / bandwidth};
}

// The measurement of this call, for so many ranks of a node.
const MeasuredCall* measured_call(const Machine& machine, std::string_view call, int ranks) {
  for (const auto& measured : machine.calls)
    if (measured.call == call && measured.ranks == ranks) return &measured;
  return nullptr;
}

int rank_of(const GridPlace& place, const GridPlace& extents) {
  int rank = 0;
  for (std::size_t a = 0; a < extents.size(); ++a) rank = rank * extents[a] + place[a];
  return rank;
}

// Levels of messages, each looked up once.
class Levels {
 public:
  Levels(const Machine& machine, const std::optional<GridExtents>& grid) : machine_(machine), grid_(grid) {}
  int of(int rank, int peer) {
    if (!grid_) return machine_.level_between(rank, peer);
    const auto from = place_of(rank, *grid_), to = place_of(peer, *grid_);
    GridPlace offset{};
    for (std::size_t a = 0; a < offset.size(); ++a) offset[a] = to[a] - from[a];
    const auto [place, added] = known_.try_emplace(offset, 0);
    if (added) place->second = farthest_level(machine_, *grid_, rank, peer);
    return place->second;
  }

 private:
  const Machine& machine_;
  const std::optional<GridExtents>& grid_;
  std::map<GridPlace, int> known_;
};

double messages_seconds(const std::vector<DryRecord>& calls, int rank, const Machine& machine, Levels& levels) {
  double longest = 0;
  // Both directions at once; messages of one direction share the rank's link, but each has its latency.
  for (const auto direction : {DryRecord::What::send, DryRecord::What::receive}) {
    double latency = 0, seconds = 0, within = 0;
    const auto* measured = measured_call(machine, "exchange", 2);
    for (const auto& call : calls) {
      if (call.what != direction) continue;
      const int at = levels.of(rank, call.peer);
      const auto& level = machine.levels[static_cast<std::size_t>(at)];
      if (measured && at == 0) {
        within += static_cast<double>(call.bytes);
        continue;
      }
      latency = std::max(latency, level.latency);
      seconds += static_cast<double>(call.bytes) * level.sharing / level.bandwidth;
    }
    if (within > 0) seconds += measured->seconds(within);
    longest = std::max(longest, latency + seconds);
  }
  return longest;
}

}  // namespace

namespace {

// A group's link, and whether one unit of the innermost level contains it; cached, because groups may have thousands of ranks.
struct GroupLink {
  Link link;
  bool innermost = false;
};
using GroupLinks = std::map<std::uint64_t, GroupLink>;  // by DryRecord::members

double collective_seconds(const DryRecord& call, const Machine& machine, int node_ranks, GroupLinks& known) {
  const int p = call.ranks ? static_cast<int>(call.ranks->size()) : 1;
  if (p <= 1) return 0;
  const auto bytes = static_cast<double>(call.bytes);
  const auto [place, added] = known.try_emplace(call.members);
  if (added) {
    const auto [lowest, highest] = std::minmax_element(call.ranks->begin(), call.ranks->end());
    place->second = {link_of(*call.ranks, machine), machine.level_between(*lowest, *highest) == 0};
  }
  const auto& link = place->second.link;
  if (const auto* measured = measured_call(machine, call.name(), p); measured && p <= node_ranks && place->second.innermost)
    return measured->seconds(bytes);
  // Formulas take the bytes of all parts together.
  const bool is_part = block_traits_of(call.kind).in == BlockRows::own;
  return best(call.kind, p, is_part ? bytes * p : bytes, link).seconds;
}

}  // namespace

double collective_seconds(const DryRecord& call, const Machine& machine, int node_ranks) {
  GroupLinks none;
  return collective_seconds(call, machine, node_ranks, none);
}

namespace {

enum class CallKind : std::uint8_t { halo, redistribution, collective, gradient };

// The kind of an event's communication.
CallKind kind_of(const StepEvent& event) {
  const bool messages = std::all_of(event.calls.begin(), event.calls.end(), std::mem_fn(&DryRecord::is_message));
  if (messages) return event.op == "redistribute" ? CallKind::redistribution : CallKind::halo;
  // Reductions that do not belong to an op are those of gradients (framework/engine/buckets.h).
  return event.communicates ? CallKind::collective : CallKind::gradient;
}

// Seconds of the messages that are sent and received together, or of one collective, for a rank by itself.
double seconds_of(const std::vector<DryRecord>& calls, int rank, const Machine& machine, Levels& levels, GroupLinks& links,
                  int node_ranks) {
  double seconds = messages_seconds(calls, rank, machine, levels);
  for (const auto& call : calls)
    if (!call.is_message()) seconds += collective_seconds(call, machine, node_ranks, links);
  return seconds;
}

}  // namespace

GridPlace extents_of(const GridExtents& g) { return {g.sample, g.depth, g.height, g.width, g.channel, g.filter}; }

GridPlace place_of(int rank, const GridExtents& grid) {
  const auto extents = extents_of(grid);
  GridPlace place{};
  for (std::size_t a = extents.size(); a-- > 0;) place[a] = rank % extents[a], rank /= extents[a];
  return place;
}

int farthest_level(const Machine& machine, const GridExtents& grid, int a, int b) {
  const auto extents = extents_of(grid);
  const auto from = place_of(a, grid), to = place_of(b, grid);
  // If a unit is not a multiple of a group of samples, the next groups are placed differently; a few of them are compared.
  constexpr int most_groups = 8;
  int outermost = machine.level_between(a, b);
  const int outer = static_cast<int>(machine.levels.size()) - 1;
  const int size = rank_of({1, 0, 0, 0, 0, 0}, extents);
  GridPlace place{};
  for (int rank = 0; rank < size && outermost < outer; ++rank) {
    place = place_of(rank, grid);
    auto peer = place;
    bool inside = true;
    for (std::size_t axis = 0; axis < place.size(); ++axis) {
      peer[axis] += to[axis] - from[axis];
      inside = inside && (axis == 0 || (peer[axis] >= 0 && peer[axis] < extents[axis]));
    }
    if (!inside) continue;
    for (int group = 0; group < std::min(grid.sample, most_groups) && outermost < outer; ++group) {
      place[0] = group, peer[0] = group + to[0] - from[0];
      if (peer[0] < 0 || peer[0] >= grid.sample) continue;
      outermost = std::max(outermost, machine.level_between(rank_of(place, extents), rank_of(peer, extents)));
    }
  }
  return outermost;
}

int working_node_ranks(const Machine& machine, int ranks, int asked) {
  return asked > 0 ? asked : std::max(1, std::min(ranks, machine.levels.empty() ? 1 : machine.levels.front().ranks));
}

StepEvent packing_of(const StepEvent& event) {
  StepEvent packing{.op = "pack", .in = {}, .out = {}, .calls = {}};
  for (const auto& call : event.calls)
    if (call.is_message()) packing.bytes += 2 * static_cast<double>(call.bytes);
  return packing;
}

StepTime time_step(const StepTrace& step, int rank, const Machine& machine, const StepTimeOptions& options) {
  require(!machine.levels.empty(), "[planner] machine {} has no level", machine.name);
  const int node_ranks = options.node_ranks > 0 ? options.node_ranks : machine.levels.front().ranks;
  std::optional<OpTimes> own;
  if (!options.ops) own.emplace(machine, node_ranks, options.tf32);
  const OpTimes& ops = options.ops ? *options.ops : *own;
  Levels levels(machine, options.grid);
  GroupLinks links;
  StepTime time;
  time.layers.resize(step.layers.size());
  // Two clocks: the rank's own, and that of the link, on which started calls follow one another.
  double now = 0, link = 0, work = 0, measured = 0;
  struct Started {
    double end = 0, seconds = 0;
    CallKind kind = CallKind::halo;
  };
  std::vector<Started> under_way;
  const auto stand_still = [&](const StepEvent& event, CallKind kind, double seconds) {
    now += seconds;
    (kind == CallKind::halo ? time.halos : kind == CallKind::redistribution ? time.redistribution : time.collectives) += seconds;
    if (kind == CallKind::gradient) time.gradients += seconds, time.exposed_gradients += seconds;
    else if (event.layer >= 0) time.layers[static_cast<std::size_t>(event.layer)].communication += seconds;
  };
  const auto wait = [&](const StepEvent& event) {
    const bool ends = event.op == "end", gradient = event.op == waits_for_reduction;
    const auto found = std::find_if(under_way.begin(), under_way.end(),
                                    [&](const Started& call) { return ends || (call.kind == CallKind::gradient) == gradient; });
    if (found == under_way.end()) return;
    const auto call = *found;
    under_way.erase(found);
    const double exposed = machine.overlaps ? std::max(0.0, call.end - now) : call.seconds;
    stand_still(event, call.kind, exposed);
    time.hidden += call.seconds - std::min(call.seconds, exposed);
    if (call.kind == CallKind::gradient) time.gradients += call.seconds - std::min(call.seconds, exposed);
  };
  for (const auto& event : step.events) {
    // Calls of an event that is not an op between ranks were started before it.
    if (!event.calls.empty()) {
      const double seconds = seconds_of(event.calls, rank, machine, levels, links, node_ranks) * event.times;
      const auto kind = kind_of(event);
      if (event.communicates) {
        stand_still(event, kind, seconds);
      } else {
        link = std::max(link, now) + seconds;
        under_way.push_back({link, seconds, kind});
      }
    }
    if (event.waits) {
      wait(event);
      continue;
    }
    if (!has_work(event)) continue;
    OpCost cost;
    if (event.communicates) {
      cost.seconds = ops.roof(packing_of(event));
    } else {
      cost = ops.of(event);
    }
    const double seconds = cost.seconds * event.times;
    now += seconds, work += seconds;
    if (cost.measured) measured += seconds;
    using Phase = StepEvent::Phase;
    (event.phase == Phase::forward ? time.forward : event.phase == Phase::backward ? time.backward : time.update) += seconds;
    if (event.layer >= 0 && event.phase != Phase::update) {
      auto& layer = time.layers[static_cast<std::size_t>(event.layer)];
      (event.phase == Phase::forward ? layer.forward : layer.backward) += seconds;
    }
  }
  const StepEvent end{.op = "end", .in = {}, .out = {}, .calls = {}};
  while (!under_way.empty()) wait(end);
  time.total = now;
  time.measured_share = work > 0 ? measured / work : 0;
  return time;
}

}  // namespace mpigrad::planner
