#pragma once
// Runs a rank under a parent process that reports how the rank ended. This is needed because a launcher ends all other ranks when
// one has died, before they can report which rank is missing, and its own message may be about a rank that it has ended itself:
// MPICH's names the first process of the job.

#include <string>
#include <vector>

namespace mpigrad::elastic {

// Runs a rank's program as a child. Signals are passed on to the child, which dies with this process and shares its output. If
// the child ends by a signal, or by an exit code that launch() does not explain, one line on standard error gives the rank, the
// host and the process, before the launcher notices. Ends as the child did; returns its exit code.
int run_rank(const std::vector<std::string>& command);

// The host in such a line; empty: it is another line.
std::string host_of_ended_rank(const std::string& line);

}  // namespace mpigrad::elastic
