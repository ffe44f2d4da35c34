#pragma once
// Checks between ranks. MPI itself detects few mismatches, on some ranks only; in other cases it hangs or computes wrong results.
//
// The environment variable MPIGRAD_CHECKS switches them on for a whole program, with words separated by commas:
//
//   signatures      every collective call is compared over its ranks before anything moves: call, number, type, count, reduction,
//                   root, and whether it is recorded on a tape. A mismatch is the same Error on all ranks, which names the ranks
//                   that differ and both calls. Costs one allgather of 80 bytes per rank and call. A non-blocking call
//                   throws the Error at the wait.
//   signatures=K    the same at every K-th call of a communicator
//   same, same=K    values that must be the same on all ranks are compared: the inputs of `replicate` (weights that drifted
//                   apart), and the cotangents of allreduce_invariant and allgather_invariant. Costs one allgather of a hash.
//                   After every K-th step of an optimizer its parameters are compared, including those that were used without
//                   `replicate`; parameters that are meant to differ have a layout that splits them
//                   (comm/distributed/same_parameters.h).
//   memory          the values that a tape keeps in memory of the program (Tensor::over()) must be the same in the backward pass,
//                   compared by a hash: else an Error (framework/engine/kept_memory.h)
//   trace           every call prints a line to standard error: rank, number, call, peers, bytes, milliseconds
//   watchdog=T      a call that takes longer than T seconds ends the job, on all ranks, with the activity of each rank
//                   (comm/transport/watch/watchdog.h)
//   stall=T         detects a training in which no rank can continue: from the first step of an optimizer on the job ends if a
//                   call takes longer than T seconds and every rank is in such a call, or one does not answer for another T / 2
//                   seconds. Evaluation, checkpoints and files do not count. Over more than one host this is on, with T = 600, in
//                   programs that launch() or run() starts.
//   watchdog=off    switches these two off, and also the watchdog described below
//
// Without any of these words, several processes on one host have a watchdog that ends the job only where a rank has reached the
// end of the program and all others have waited in calls for 10 s. Under threads, and with watchdog=off, transports are not
// wrapped and checks cost nothing.

#include <memory>
#include <string_view>

#include "comm/transport/transport.h"

namespace mpigrad {

struct CheckOptions {
  int signatures = 0;  // compare every `signatures`-th call; 0: never
  int same = 0;        // likewise
  bool memory = false;
  bool trace = false;
  double watchdog = 0;  // seconds; 0: none
  double stall = 0;     // seconds; 0: the default, on only over more than one host
  bool no_watchdog = false;
  explicit operator bool() const { return signatures > 0 || same > 0 || trace || watchdog > 0; }
};

// The options in a value of MPIGRAD_CHECKS. Error: a word that is none of the above.
CheckOptions parse_checks(std::string_view text);
CheckOptions checks_of_environment();

// `transport`, wrapped to be watched as requested, and for this rank's watchdog if it has one. Returns it unchanged if there is
// nothing to do, if it is watched already, or if it is the dry one. Collective.
std::shared_ptr<Transport> watched(std::shared_ptr<Transport> transport, const CheckOptions& options = checks_of_environment());

}  // namespace mpigrad
