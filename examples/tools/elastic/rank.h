#pragma once
// A rank under a parent that tells how it ended. A launcher ends all other ranks when one has died, before these can tell who is
// missing, and what it says itself may be of one that it has ended: MPICH's names the first process of the job.

#include <string>
#include <vector>

namespace mpigrad::elastic {

// Runs a rank's program as a child, to which signals are handed on and which dies with this process; its output is that of this
// one. Where it ends by a signal, or by an exit code with which launch() does not say why itself, one line on standard error
// tells the rank, the host and the process before the launcher hears of it. Ends as the child did; returns its exit code.
int run_rank(const std::vector<std::string>& command);

// The host that such a line names; empty: it is another line.
std::string host_of_ended_rank(const std::string& line);

}  // namespace mpigrad::elastic
