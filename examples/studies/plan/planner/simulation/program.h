#pragma once
// What every rank of a grid does in a training step, made of the trace of one of them: the input of simulate(). Not installed.

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
  // Ops that follow each other in a layer.
  struct Compute {
    double seconds = 0;
    double spread = 0;  // root of the sum of the ops' squared seconds: the standard deviation of all, if each has its own seconds
    Phase phase = Phase::forward;
    int layer = -1;
  };
  // From every rank to the one that lies `offset` from it, where there is such a rank.
  struct Message {
    GridPlace offset{};
    double bytes = 0;
    double within = -1;  // seconds by the link of the innermost level, as "exchange" was measured; negative: by its bandwidth
    bool sent = true, received = true;  // by those that should; else the others wait forever
  };
  // To or from the rank whose number is so much larger than one's own, which has the other end in `calls` of its own program.
  struct End {
    int distance = 0, calls = -1;
    double bytes = 0, within = -1;
    bool sends = false;
  };
  // A collective of ranks whose numbers differ in these digits alone: (rank / stride) % count.
  struct Digit {
    int stride = 1, count = 1;
  };
  struct Meeting {
    DryRecord call;  // of the traced rank
    std::vector<Digit> digits{};
  };
  // What a rank stands still for.
  enum class Kind : std::uint8_t { halo, redistribution, collective };
  // Messages posted together, then collectives one after the other. Messages are those of all ranks, or ends of this program's.
  struct Calls {
    std::string op;
    Phase phase = Phase::forward;
    int layer = -1;
    Kind kind = Kind::halo;
    double times = 1;  // that all of it takes place
    std::vector<Message> messages{};
    std::vector<End> ends{};
    std::vector<Meeting> collectives{};
  };
  // `run` stands still for calls. Those that `start` follow each other beside what comes next, and `wait` stands still for one of
  // them, and with it for those before; the end of a step waits for all. Where nothing overlaps on the machine they take place in
  // the wait.
  struct Item {
    enum class Do : std::uint8_t { compute, run, start, wait };
    Do what = Do::compute;
    int index = 0;  // of computes or of calls; of a wait: which of the calls that the step has started
  };

  std::vector<std::string> layers;
  std::vector<Compute> computes;
  std::vector<Calls> calls;
  std::vector<Item> items;
};

// `step` is that of rank `rank` of the grid; ops take as long as OpTimes says for `node_ranks` ranks of a node (0: as many as the
// machine's innermost level joins).
//
// Others lie to their peers as the traced rank to its own: peers have offsets in the grid. What it sends to an offset every rank
// receives from the opposite one, and the other way round, so that each message has two ends also where the traced rank sees one
// of them; of a message whose ends count different bytes, the larger. Not seen are messages between corners that both lie beside
// it, along axes of two ranks. Errors: collectives of ranks that are no subgrid.
StepProgram program_of(const StepTrace& step, int rank, const GridExtents& grid, const Machine& machine, int node_ranks = 0,
                       bool tf32 = false);

// Where layers have grids of their own ranks do not lie to each other in one way, and each has a program of its own: of n
// programs, number i is that of the ranks i, i + n, i + 2 n and so on, with what each of them sends to whom.
//
// `trace` is a step of a rank. `repeating` ranks and those behind them do the same among themselves (repeating_ranks()); where
// they turn out to say something to others, all ranks are traced. Errors: as above; a message of which one end is missing.
std::vector<StepProgram> programs_of(const std::function<StepTrace(int rank)>& trace, int repeating, const GridExtents& grid,
                                     const Machine& machine, int node_ranks = 0, bool tf32 = false);
// Of the network's grid and its layers', the fewest ranks that have samples of their own on all of them; all, where blocks of
// samples are not of one size.
int repeating_ranks(const std::vector<GridExtents>& grids, std::int64_t batch);

}  // namespace mpigrad::planner
