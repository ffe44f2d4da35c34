#pragma once
// Stragglers: reports what each rank spends its time in, and which rank computes longest, for which the others wait.

#include <cstdint>
#include <string>

#include "comm/communicator.h"

namespace mpigrad {

// Times of one rank, over the steps of a training. On a GPU these are times of the host.
struct RankTimes {
  std::int64_t steps = 0;
  double seconds = 0;                    // in these steps
  double messages = 0, collectives = 0;  // included: waiting in messages (halos) and in collective calls
  double data = 0;                       // included: waiting for batches
  double compute() const { return seconds - messages - collectives - data; }
};

// A table of the milliseconds per step of every rank (of more than 16 ranks: the five that compute longest, the median and the
// shortest), and by how much the longest exceeds the median. Collective; a text on rank 0. The rank that computes longest waits
// least: the others wait for its work.
std::string straggler_table(const RankTimes& mine, const Communicator& world);

// Adds the times between its calls to the times of a rank.
class StepClock {
 public:
  explicit StepClock(RankTimes* times) : times_(times) {}
  void start();               // ignores the time before this call
  void batch(double waited);  // a batch has arrived, for which the rank has waited so long since start(), batch() or step()
  void step();                // a step has ended, which began at start() or the previous step()

 private:
  RankTimes* times_;
  double seconds_ = 0, messages_ = 0, collectives_ = 0, data_ = 0, seen_ = 0;
};

}  // namespace mpigrad
