#pragma once
// A discrete-event simulation of training steps on all ranks of a grid, each with its own clock: it shows the costs of late ranks
// for the others, and of messages that share links.

#include <cstdint>
#include <string>
#include <vector>

#include "examples/studies/plan/planner/machine/machine.h"
#include "examples/studies/plan/planner/simulation/program.h"
#include "models/nn/step_trace.h"

namespace mpigrad::planner {

struct SimulateOptions {
  int steps = 3;
  // Each op of each rank takes its time multiplied by 1 + jitter * z, z standard normal, but at least 0. The random numbers are
  // those of (seed, rank, step, op), independent of the order of events.
  double jitter = 0;
  std::uint64_t seed = 1;
  // This rank's ops take `straggler_factor` times as long; negative: no rank's.
  int straggler = -1;
  double straggler_factor = 1;
  int node_ranks = 0;  // ranks of a node; 0: as many as the innermost level connects
  bool tf32 = false;
  // True if messages wait for each other on shared links.
  bool contention = true;
  std::vector<int> traced{};  // ranks, at most 64, that perfetto() shows
};

// Seconds of a rank in all steps, working and waiting.
struct RankTime {
  double work = 0, halos = 0, redistribution = 0, collectives = 0;
};

// The critical path to the end of a step: work and calls, from rank to rank, each of which had to end before the next began.
struct CriticalPath {
  double work = 0, halos = 0, collectives = 0;  // seconds; halos: all messages between two ranks
  // "compute", "halo" or "collective", whichever is longest.
  std::string cause() const;
};

struct Simulation {
  std::vector<double> steps;  // seconds of each, from the end of the previous step to that of the last rank
  double mean = 0;            // seconds of a step
  std::vector<RankTime> ranks;
  // The rank that works longest; of equal ones the first that waits least.
  int slowest = 0;
  double utilisation = 0;  // work of all ranks over their total time
  CriticalPath critical;   // path of the last step
  std::int64_t events = 0;

  struct Span {
    int rank = 0, lane = 0;
    double start = 0, seconds = 0;
    std::string name;
  };
  std::vector<Span> spans;  // of the traced ranks
};

// Every rank runs the program, or its own (programs_of()). The model of time:
//
// * Work takes its seconds, with jitter and the straggler's factor.
// * A message starts when both of its ends have posted it, as messages above the MPI library's eager limit do, and passes all of
//   its links at once: the slowest link determines its speed, and one latency is added. Each rank has a link of bandwidth /
//   sharing of the level inside its innermost unit. Between units the sender's unit has a link up and the receiver's a link down,
//   of bandwidth * ranks of the unit / sharing, of which one rank uses at most bandwidth. With contention a link serves messages
//   in the order in which they start; without contention only messages of the same calls of a rank wait for each other.
// * A collective begins when its last rank arrives and takes collective_seconds() of these ranks.
// * Started calls progress in parallel with work and with calls that a rank waits for, in the order of starting, if the machine
//   overlaps; otherwise they begin with their wait. They do not slow work in either case.
//
// With one level, no contention, no jitter and no straggler, steps take as long as time_step() says for a rank that has all the
// neighbours of the traced one.
// Errors: invalid options; more ranks than the machine has; a deadlock, by rank and op.
Simulation simulate(const StepProgram& program, const GridExtents& grid, const Machine& machine,
                    const SimulateOptions& options = {});
// The same for ranks with their own programs, as programs_of() returns them: `programs` of the first ranks, which the others
// repeat.
Simulation simulate(const std::vector<StepProgram>& programs, const GridExtents& grid, const Machine& machine,
                    const SimulateOptions& options = {});
// The same for the program made from the trace of rank `rank` of the grid.
Simulation simulate(const StepTrace& step, int rank, const GridExtents& grid, const Machine& machine,
                    const SimulateOptions& options = {});

// The traced ranks in the trace event format, as models/train/profile.h writes measured ones: a process for each rank, with lanes
// for steps, compute, communication (for which the rank waits) and data, and one for started calls.
std::string perfetto(const Simulation& simulation);

}  // namespace mpigrad::planner
