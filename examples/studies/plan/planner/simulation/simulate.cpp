#include "examples/studies/plan/planner/simulation/simulate.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "examples/studies/plan/planner/simulation/simulation_parts.h"
#include "examples/studies/plan/planner/simulation/simulation_state.h"
#include "framework/base/error.h"
#include "framework/tensor/random.h"

namespace mpigrad::planner {
namespace {

using Do = StepProgram::Item::Do;
using Kind = StepProgram::Kind;

constexpr std::size_t most_traced = 64;
constexpr int most_steps = 10'000;
enum Lane : int { whole_step = 0, compute = 1, communication = 2, overlapped = 4 };  // 3: data

std::size_t at(int i) { return static_cast<std::size_t>(i); }

using simulated::Event, simulated::Meeting, simulated::Path, simulated::Rank, simulated::Slot, simulated::Translation,
    simulated::Way;

class Simulator {
 public:
  Simulator(const std::vector<StepProgram>& programs, const GridExtents& grid, const Machine& machine,
            const SimulateOptions& options)
      : programs_(programs), machine_(machine), o_(options), size_(ranks_of(grid)),
        links_(checked(machine), size_, options.contention),
        groups_(programs, machine, size_, options.node_ranks > 0 ? options.node_ranks : machine.levels.front().ranks) {
    extents_ = extents_of(grid);
    ranks_.resize(at(size_));
    places_.reserve(at(size_));
    for (int rank = 0; rank < size_; ++rank) places_.push_back(place_of(rank, grid));
    make_messages();
    meetings_.resize(groups_.size());
    traced_.assign(at(size_), false);
    for (const int rank : o_.traced) traced_[at(rank)] = true;
    result_.ranks.resize(at(size_));
    ends_.assign(at(o_.steps), 0);
  }

  Simulation run() {
    for (int rank = 0; rank < size_; ++rank) push(0, Event::go_on, rank);
    while (!events_.empty()) {
      const auto event = events_.top();
      events_.pop();
      ++result_.events;
      switch (event.what) {
        case Event::go_on: go_on(event.id, event.time); break;
        case Event::messages: stage_over(event.id / 2, event.id % 2, event.time); break;
        case Event::collective: collective_over(event.id, event.time); break;
      }
    }
    if (finished_ < size_) deadlock();
    return result();
  }

 private:
  // Checks options and machine, before anything is made from them.
  const Machine& checked(const Machine& machine) const {
    require(!machine.levels.empty() && size_ >= 1 && size_ <= machine.ranks(), "[simulate] machine {} has {} ranks, the grid {}",
            machine.name, machine.levels.empty() ? 0 : machine.ranks(), size_);
    require(o_.steps >= 1 && o_.steps <= most_steps, "[simulate] 1 to {} steps, not {}", most_steps, o_.steps);
    require(std::isfinite(o_.jitter) && o_.jitter >= 0, "[simulate] jitter is a number of 0 or more, got {}", o_.jitter);
    require(o_.straggler < size_, "[simulate] {} ranks have no straggler {}", size_, o_.straggler);
    require(std::isfinite(o_.straggler_factor) && o_.straggler_factor > 0, "[simulate] a straggler's factor is above 0, got {}",
            o_.straggler_factor);
    require(o_.traced.size() <= most_traced, "[simulate] a trace of at most {} ranks, not of {}", most_traced, o_.traced.size());
    for (const int rank : o_.traced)
      require(rank >= 0 && rank < size_, "[simulate] {} ranks have no rank {} to trace", size_, rank);
    return machine;
  }

  const StepProgram& program(int rank) const { return programs_[at(rank) % programs_.size()]; }

  void make_messages() {
    for (const auto& program : programs_) {
      auto& starts = starts_.emplace_back();
      for (const auto& item : program.items)
        if (item.what == Do::start) starts.push_back(item.index);
    }
    for (const auto& calls : programs_.front().calls) {
      auto& list = translations_.emplace_back();
      for (const auto& message : calls.messages) {
        int distance = 0;
        for (std::size_t a = 0; a < extents_.size(); ++a) distance = distance * extents_[a] + message.offset[a];
        list.push_back({message.offset, distance});
      }
    }
  }

  void push(double time, Event::What what, int id) { events_.push({time, what, id}); }

  void span(int rank, Lane lane, double start, double end, int layer, std::string_view name) {
    if (!traced_[at(rank)] || end <= start) return;
    auto text = std::string(name);
    const auto& layers = program(rank).layers;
    if (layer >= 0 && layer < static_cast<int>(layers.size())) text = layers[at(layer)] + " " + text;
    result_.spans.push_back({rank, lane, start, end - start, std::move(text)});
  }

  void stood_still(int rank, const StepProgram::Calls& calls, double since, double now) {
    auto& time = result_.ranks[at(rank)];
    (calls.kind == Kind::halo             ? time.halos
     : calls.kind == Kind::redistribution ? time.redistribution
                                          : time.collectives) += now - since;
    span(rank, communication, since, now, calls.layer, calls.op);
  }

  // Continues the program until something takes time.
  void go_on(int r, double now) {
    auto& rank = ranks_[at(r)];
    const auto& program = this->program(r);
    const int items = static_cast<int>(program.items.size());
    for (;;) {
      if (rank.item == items && rank.done == rank.started) {
        rank.base = rank.started;
        end_step(r, now);
        if (rank.step == o_.steps) return;
        continue;
      }
      const auto item =
          rank.item < items ? program.items[at(rank.item)] : StepProgram::Item{Do::wait, rank.started - rank.base - 1};
      switch (item.what) {
        case Do::compute: {
          const double end = now + work(r, item.index, now);
          ++rank.item;
          if (end > now) return push(end, Event::go_on, r);
          break;
        }
        case Do::run: return post(r, 0, item.index, rank.step, now, rank.path);
        case Do::start:
          ++rank.started, ++rank.item;
          if (machine_.overlaps && rank.slots[1].calls < 0) post_started(r, now, rank.path);
          break;
        case Do::wait:
          rank.needed = std::min(rank.started, rank.base + item.index + 1);
          if (rank.done >= rank.needed) {
            if (rank.item < items) ++rank.item;
            break;
          }
          rank.since = now, rank.waits = true;
          if (!machine_.overlaps) post_started(r, now, rank.path);
          return;
      }
    }
  }

  double work(int r, int index, double now) {
    const auto& computes = program(r).computes;
    const auto& all = computes[at(index)];
    auto& rank = ranks_[at(r)];
    double seconds = all.seconds;
    if (o_.jitter > 0) {
      const auto counter = static_cast<std::uint64_t>(rank.step) * computes.size() + at(index);
      seconds = std::max(0.0, seconds + o_.jitter * all.spread * Philox{o_.seed, static_cast<std::uint64_t>(r)}.normal(counter));
    }
    if (r == o_.straggler) seconds *= o_.straggler_factor;
    constexpr const char* phases[] = {"forward", "backward", "update"};
    span(r, compute, now, now + seconds, all.layer, phases[static_cast<int>(all.phase)]);
    rank.path.work += seconds, result_.ranks[at(r)].work += seconds;
    return seconds;
  }

  void end_step(int r, double now) {
    auto& rank = ranks_[at(r)];
    span(r, whole_step, rank.began, now, -1, traced_[at(r)] ? fmt::format("step {}", rank.step + 1) : std::string());
    auto& end = ends_[at(rank.step)];
    if (now >= end) {
      end = now;
      if (rank.step + 1 == o_.steps) result_.critical = {rank.path.work, rank.path.halos, rank.path.collectives};
    }
    if (++rank.step == o_.steps) ++finished_;
    rank.item = 0, rank.began = now, rank.path = {};
  }

  void post_started(int r, double now, const Path& path) {
    const auto& rank = ranks_[at(r)];
    const auto& starts = starts_[at(r) % starts_.size()];
    const int per_step = static_cast<int>(starts.size());
    post(r, machine_.overlaps ? 1 : 0, starts[at(rank.done % per_step)], rank.done / per_step, now, path);
  }

  // The rank at this offset, or -1.
  int peer(int r, const Translation& to, int sign) const {
    const auto& place = places_[at(r)];
    for (std::size_t a = 0; a < place.size(); ++a) {
      const int along = place[a] + sign * to.offset[a];
      if (along < 0 || along >= extents_[a]) return -1;
    }
    return r + sign * to.distance;
  }

  // Calls f(way) for each end of a message in a rank's calls `c`.
  template <class F>
  void for_ways(int r, int c, const F& f) const {
    const auto& calls = program(r).calls[at(c)];
    for (std::size_t m = 0; m < calls.messages.size(); ++m) {
      const auto& message = calls.messages[m];
      for (const bool sends : {true, false}) {
        if (!(sends ? message.sent : message.received)) continue;
        const int other = peer(r, translations_[at(c)][m], sends ? 1 : -1);
        if (other >= 0 && other != r) f(Way{other, c, sends, message.bytes, message.within, message.sent && message.received});
      }
    }
    for (const auto& end : calls.ends) f(Way{r + end.distance, end.calls, end.sends, end.bytes, end.within});
  }

  void post(int r, int s, int c, int step, double now, const Path& path) {
    const double times = program(r).calls[at(c)].times;
    auto& slot = ranks_[at(r)].slots[s];
    slot = {.calls = c, .step = step, .pending = 1, .posted = now, .end = now, .path = path};
    for_ways(r, c, [&](const Way& way) {
      ++slot.pending;
      // The later one of two ends finds the other's.
      const auto& theirs = ranks_[at(way.other)].slots[s];
      if (theirs.calls != way.calls || theirs.step != step || !way.whole) return;
      const int from = way.sends ? r : way.other, to = way.sends ? way.other : r;
      const double end = links_.arrival(way.bytes, way.within, from, to, s, times, now);
      auto longer = path;
      longer.halos += end - now;
      for (const int both : {way.other, r}) {
        auto& its = ranks_[at(both)].slots[s];
        if (end > its.end) its.end = end, its.path = longer;
        if (--its.pending == 0) push(its.end, Event::messages, 2 * both + s);
      }
    });
    if (--slot.pending == 0) push(slot.end, Event::messages, 2 * r + s);
  }

  // Messages or a collective have ended: starts the next collective, or what follows the calls.
  void stage_over(int r, int s, double now) {
    auto& slot = ranks_[at(r)].slots[s];
    const auto groups = groups_.of(r, slot.calls);
    if (slot.stage == static_cast<int>(groups.size())) return calls_over(r, s, now);
    const int g = groups[at(slot.stage++)];
    const auto& group = groups_[at(g)];
    auto& meeting = meetings_[at(g)];
    if (++meeting.arrived < group.count) return;
    meeting.arrived = 0, meeting.path = slot.path;
    meeting.path.collectives += group.seconds;
    push(now + group.seconds, Event::collective, g);
  }

  void collective_over(int g, double now) {
    const auto& group = groups_[at(g)];
    const int s = group.started && machine_.overlaps ? 1 : 0;
    const auto path = meetings_[at(g)].path;
    for (int m = group.first; m < group.first + group.count; ++m) {
      const int r = groups_.members()[at(m)];
      ranks_[at(r)].slots[s].path = path;
      stage_over(r, s, now);
    }
  }

  void calls_over(int r, int s, double now) {
    auto& rank = ranks_[at(r)];
    auto& slot = rank.slots[s];
    const auto& calls = program(r).calls[at(slot.calls)];
    const auto path = slot.path;
    slot.calls = -1;
    const bool was_started = s == 1 || rank.waits;
    if (!was_started) {
      stood_still(r, calls, slot.posted, now);
      rank.path = path, ++rank.item;
      return go_on(r, now);
    }
    if (s == 1) span(r, overlapped, slot.posted, now, calls.layer, calls.op);
    ++rank.done;
    const bool goes_on = rank.waits && rank.done >= rank.needed;
    if (rank.waits) stood_still(r, calls, rank.since, now), rank.since = now, rank.path = path;
    if (rank.waits && !goes_on && !machine_.overlaps) post_started(r, now, path);
    if (goes_on) {
      rank.waits = false;
      if (rank.item < static_cast<int>(program(r).items.size())) ++rank.item;
    }
    if (machine_.overlaps && rank.started > rank.done) post_started(r, now, path);
    if (goes_on) go_on(r, now);
  }

  std::string name_of(int r, int c) const {
    const auto& calls = program(r).calls[at(c)];
    const auto& layers = program(r).layers;
    if (calls.layer < 0 || calls.layer >= static_cast<int>(layers.size())) return calls.op;
    return fmt::format("{} of {}", calls.op, layers[at(calls.layer)]);
  }

  // Reports one of the waiting ranks whose wait nothing can end; others wait for it.
  [[noreturn]] void deadlock() const {
    for (const bool messages : {true, false})
      for (int r = 0; r < size_; ++r)
        for (int s = 0; s < 2; ++s) {
          const auto& slot = ranks_[at(r)].slots[s];
          if (slot.calls < 0) continue;
          const auto here =
              fmt::format("[simulate] deadlock in step {}: rank {} waits in {}", slot.step + 1, r, name_of(r, slot.calls));
          if (!messages) fail("{} for other ranks of its group", here);
          if (slot.pending > 0) name_peer(r, s, here);
        }
    fail("[simulate] deadlock: {} of {} ranks have ended", finished_, size_);
  }
  void name_peer(int r, int s, const std::string& here) const {
    const auto& slot = ranks_[at(r)].slots[s];
    for_ways(r, slot.calls, [&](const Way& way) {
      const auto& theirs = ranks_[at(way.other)].slots[s];
      if (theirs.calls == way.calls && theirs.step == slot.step && way.whole) return;
      fail("{} for rank {}, which does not {}", here, way.other, way.sends ? "receive" : "send");
    });
  }

  Simulation result() {
    double last = 0, all = 0;
    for (const double end : ends_) result_.steps.push_back(end - last), last = end;
    result_.mean = last / o_.steps;
    // Another summation order is not a different amount of work.
    constexpr double same = 1 - 1e-12;
    const auto still = [](const RankTime& time) { return time.halos + time.redistribution + time.collectives; };
    for (int r = 0; r < size_; ++r) {
      const auto &time = result_.ranks[at(r)], &most = result_.ranks[at(result_.slowest)];
      all += time.work;
      if (time.work * same > most.work || (time.work >= most.work * same && still(time) < still(most) * same))
        result_.slowest = r;
    }
    result_.utilisation = last > 0 ? all / (last * size_) : 0;
    return std::move(result_);
  }

  const std::vector<StepProgram>& programs_;
  const Machine& machine_;
  const SimulateOptions& o_;
  const int size_;
  GridPlace extents_{};
  std::vector<GridPlace> places_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<Translation>> translations_;  // by index of calls
  std::vector<std::vector<int>> starts_;                // by program: started calls, in order
  SharedLinks links_;
  Subgrids groups_;
  std::vector<Meeting> meetings_;  // by group
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<bool> traced_;
  std::vector<double> ends_;  // by step
  int finished_ = 0;
  Simulation result_;
};

}  // namespace

std::string CriticalPath::cause() const {
  if (work >= halos && work >= collectives) return "compute";
  return halos >= collectives ? "halo" : "collective";
}

Simulation simulate(const StepProgram& program, const GridExtents& grid, const Machine& machine, const SimulateOptions& options) {
  return simulate(std::vector{program}, grid, machine, options);
}

Simulation simulate(const std::vector<StepProgram>& programs, const GridExtents& grid, const Machine& machine,
                    const SimulateOptions& options) {
  require(!programs.empty(), "[simulate] ranks have a program");
  return Simulator(programs, grid, machine, options).run();
}

Simulation simulate(const StepTrace& step, int rank, const GridExtents& grid, const Machine& machine,
                    const SimulateOptions& options) {
  const auto program = program_of(step, rank, grid, machine, options.node_ranks, options.tf32);
  return simulate(program, grid, machine, options);
}

}  // namespace mpigrad::planner
