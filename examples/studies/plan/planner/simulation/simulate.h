#pragma once
// A discrete-event simulation of training steps on all ranks of a grid, each with its own clock: what one that is late costs the
// others, and what messages that share links cost each other.

#include <cstdint>
#include <string>
#include <vector>

#include "examples/studies/plan/planner/machine/machine.h"
#include "examples/studies/plan/planner/simulation/program.h"
#include "models/nn/step_trace.h"

namespace mpigrad::planner {

struct SimulateOptions {
  int steps = 3;
  // Each op of each rank takes its time times 1 + jitter * z, z standard normal, but no less than nothing. The numbers are those
  // of (seed, rank, step, op), whatever happens in which order.
  double jitter = 0;
  std::uint64_t seed = 1;
  // This rank takes so many times as long for its ops; negative: none does.
  int straggler = -1;
  double straggler_factor = 1;
  int node_ranks = 0;  // ranks of a node; 0: as many as the machine's innermost level joins
  bool tf32 = false;
  // Whether messages wait for each other on links that they share.
  bool contention = true;
  std::vector<int> traced{};  // ranks, at most 64, of which perfetto() tells
};

// Seconds of a rank in all steps, at work and standing still.
struct RankTime {
  double work = 0, halos = 0, redistribution = 0, collectives = 0;
};

// What the end of a step waited for: the path of work and calls, from rank to rank, each of which had to end before the next
// began.
struct CriticalPath {
  double work = 0, halos = 0, collectives = 0;  // seconds; halos: all messages between two ranks
  // "compute", "halo" or "collective", the longest of them.
  std::string cause() const;
};

struct Simulation {
  std::vector<double> steps;  // seconds of each, from the end of the one before to where the last rank ends it
  double mean = 0;            // seconds of a step
  std::vector<RankTime> ranks;
  // The rank that works longest; of those that work equally long, the first of those that stand still the least.
  int slowest = 0;
  double utilisation = 0;  // work of all ranks, of the time they have
  CriticalPath critical;   // of the last step
  std::int64_t events = 0;

  struct Span {
    int rank = 0, lane = 0;
    double start = 0, seconds = 0;
    std::string name;
  };
  std::vector<Span> spans;  // of the traced ranks
};

// Every rank runs the program, or one of its own (programs_of()). What it means by time:
//
// * Work takes its seconds, with jitter and the straggler's factor.
// * A message starts when both of its ends have posted it, as those do that are larger than what an MPI library sends unasked,
// and
//   goes through all of its links at once: the slowest of them is its speed, and a latency comes on top. Ranks of one innermost
//   unit each have a link of bandwidth / sharing of that level. Between units the sender's has one up and the receiver's one
//   down, of bandwidth * ranks of the unit / sharing, of which one rank fills at most bandwidth. With contention a link serves
//   messages in the order in which they start; without, only those of the same calls of a rank wait for each other.
// * A collective begins when the last of its ranks is there and takes as long as collective_seconds() says of these ranks.
// * What is started progresses beside work and beside calls that a rank stands still for, in the order of starting, where the
//   machine overlaps; else it begins with its wait. It slows work in neither case.
//
// With one level, no contention, no jitter and no straggler steps take as long as time_step() says of a rank that has all the
// neighbours of the traced one.
// Errors: options that make no sense; more ranks than the machine has; ranks that wait for what nobody sends, by rank and op.
Simulation simulate(const StepProgram& program, const GridExtents& grid, const Machine& machine,
                    const SimulateOptions& options = {});
// The same where ranks have programs of their own, as programs_of() says: `programs` of the first of them, which others repeat.
Simulation simulate(const std::vector<StepProgram>& programs, const GridExtents& grid, const Machine& machine,
                    const SimulateOptions& options = {});
// The same of the program of a trace, of rank `rank` of the grid.
Simulation simulate(const StepTrace& step, int rank, const GridExtents& grid, const Machine& machine,
                    const SimulateOptions& options = {});

// The traced ranks in the trace event format, as models/train/profile.h writes what was measured: a process for each rank, lanes
// for steps, compute, communication (what the rank stands still for) and data, and one more for what was started beside them.
std::string perfetto(const Simulation& simulation);

}  // namespace mpigrad::planner
