#pragma once
// Checks between ranks. MPI itself finds few mismatches, on some ranks only, and hangs or computes nonsense in the others.
//
// The environment variable MPIGRAD_CHECKS switches them on for a whole program, with words separated by commas:
//
//   signatures      every collective call is compared over its ranks before anything moves: call, number, type, count, reduction,
//                   root, and whether it is recorded on a tape. A mismatch is the same Error on all ranks, which names the ranks
//                   that differ and both calls. One allgather of 80 bytes per rank and call. Of a non-blocking call it is told at
//                   the wait.
//   signatures=K    the same at every K-th call of a communicator
//   same, same=K    what is said to be the same on all ranks is compared: the values given to `replicate` (weights that drifted
//                   apart), the cotangents that come to allreduce_invariant and allgather_invariant. One allgather of a hash.
//                   After every K-th step of an optimizer its parameters are compared, those of which a use went around
//                   `replicate` included; what is meant to differ has a layout that splits it
//                   (comm/distributed/same_parameters.h).
//   memory          what a tape keeps of memory that the program wraps (wrap()) is the same in the backward pass, by a hash: else
//                   an Error (framework/engine/kept_memory.h)
//   trace           every call prints a line to standard error: rank, number, call, peers, bytes, milliseconds
//   watchdog=T      a call that takes longer than T seconds ends the job, on all ranks, with what each was doing
//                   (comm/transport/watch/watchdog.h)
//   stall=T         only where nobody can go on, in training: from the first step of an optimizer on the job ends if a call takes
//                   longer than T seconds and every rank is in such a call, or one does not answer for another T / 2 seconds.
//                   Evaluation, checkpoints and files do not count. Over more than one host this is on, with T = 600, in
//                   programs that launch() or run() starts.
//   watchdog=off    neither of the two, nor the one below
//
// Without any, several processes on one host have a watchdog that ends the job only where a rank has reached the end of the
// program and all others have waited in calls for 10 s. Under threads, and with watchdog=off, nothing is wrapped, which costs
// nothing.

#include <memory>
#include <string_view>

#include "comm/transport/transport.h"

namespace mpigrad {

struct CheckOptions {
  int signatures = 0;  // compare every so many calls; 0: never
  int same = 0;        // likewise
  bool memory = false;
  bool trace = false;
  double watchdog = 0;  // seconds; 0: none
  double stall = 0;     // seconds; 0: none, but over more than one host
  bool no_watchdog = false;
  explicit operator bool() const { return signatures > 0 || same > 0 || trace || watchdog > 0; }
};

// What MPIGRAD_CHECKS says. Error: a word that is none of the above.
CheckOptions parse_checks(std::string_view text);
CheckOptions checks_of_environment();

// `transport` watched as asked for, and for this rank's watchdog if it has one; itself if there is nothing to do, if it is
// watched already, or if it is the dry one. Collective.
std::shared_ptr<Transport> watched(std::shared_ptr<Transport> transport, const CheckOptions& options = checks_of_environment());

}  // namespace mpigrad
