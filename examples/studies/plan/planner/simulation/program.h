#pragma once
// The programs of all ranks of a grid for a training step, made from the trace of one rank: the input of simulate(). Not
// installed.

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "examples/studies/plan/planner/machine/machine.h"
#include "examples/studies/plan/planner/step_time.h"
#include "models/nn/step_trace.h"

namespace mpigrad::planner {

// A rank that has neighbours on both sides of every axis of more than two ranks, and the largest blocks.
int representative_rank(const GridExtents& grid);

struct StepProgram {
  using Phase = StepEvent::Phase;
  // Consecutive ops of a layer.
  struct Compute {
    double seconds = 0;
    double spread = 0;  // root of the sum of the ops' squared seconds, for jitter
    Phase phase = Phase::forward;
    int layer = -1;
  };
  // From every rank to the rank at `offset` from it, if there is one.
  struct Message {
    GridPlace offset{};
    double bytes = 0;
    double within = -1;                 // seconds on the innermost link, from "exchange"; negative: by bandwidth
    bool sent = true, received = true;  // false: an end is missing, and the other waits forever
  };
  // To or from the rank whose number is larger than this one's by `distance`; that rank has the other end in its own `calls`.
  struct End {
    int distance = 0, calls = -1;
    double bytes = 0, within = -1;
    bool sends = false;
  };
  // Collectives among ranks whose numbers differ only in these digits: (rank / stride) % count.
  struct Digit {
    int stride = 1, count = 1;
  };
  struct Meeting {
    DryRecord call;  // of the traced rank
    std::vector<Digit> digits{};
  };
  // Kinds of calls that a rank waits for.
  enum class Kind : std::uint8_t { halo, redistribution, collective };
  // Messages posted together, then collectives one after the other. Messages are those of all ranks, or ends in this program.
  struct Calls {
    std::string op;
    Phase phase = Phase::forward;
    int layer = -1;
    Kind kind = Kind::halo;
    double times = 1;  // number of repetitions
    std::vector<Message> messages{};
    std::vector<End> ends{};
    std::vector<Meeting> collectives{};
  };
  // `run` waits for its calls. Calls of `start` follow one another in parallel with the next items, and `wait` waits for one of
  // them and those started before it; the end of a step waits for all. If nothing overlaps on the machine, they take place in the
  // wait.
  struct Item {
    enum class Do : std::uint8_t { compute, run, start, wait };
    Do what = Do::compute;
    int index = 0;  // in computes or calls; for a wait: number of the started calls
  };

  std::vector<std::string> layers;
  std::vector<Compute> computes;
  std::vector<Calls> calls;
  std::vector<Item> items;
};

// `step` is that of rank `rank` of the grid; ops take the times of OpTimes for `node_ranks` ranks of a node (0: as many as the
// machine's innermost level connects).
//
// All ranks have peers at the same offsets in the grid as the traced rank. If it sends to an offset, every rank receives from the
// opposite offset, and vice versa, so that each message has two ends even if the traced rank sees only one; if the ends have
// different bytes, the larger counts. Messages between corners that are both neighbours of the traced rank, along axes of two
// ranks, are not seen. Errors: collectives of ranks that are not a subgrid.
StepProgram program_of(const StepTrace& step, int rank, const GridExtents& grid, const Machine& machine, int node_ranks = 0,
                       bool tf32 = false);

// For layers with their own grids, ranks have peers at different offsets, and each has its own program: of n programs, number i
// is that of the ranks i, i + n, i + 2 n and so on, with all messages to and from these.
//
// `trace` returns a step of a rank. The first `repeating` ranks and each further group of as many do the same among themselves
// (repeating_ranks()); if they turn out to communicate with others, all ranks are traced. Errors: as above; a message with a
// missing end.
std::vector<StepProgram> programs_of(const std::function<StepTrace(int rank)>& trace, int repeating, const GridExtents& grid,
                                     const Machine& machine, int node_ranks = 0, bool tf32 = false);
// The fewest ranks that have their own samples on the network's grid and all its layers' grids; all ranks if blocks of samples
// differ in size.
int repeating_ranks(const std::vector<GridExtents>& grids, std::int64_t batch);

}  // namespace mpigrad::planner
