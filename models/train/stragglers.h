#pragma once
// Which rank keeps the others waiting, and for what.

#include <cstdint>
#include <string>

#include "comm/communicator.h"

namespace mpigrad {

// Of one rank, over the steps of a training. On a GPU these are times of the host.
struct RankTimes {
  std::int64_t steps = 0;
  double seconds = 0;                    // of these steps
  double messages = 0, collectives = 0;  // of these, waiting in messages (halos) and in collective calls
  double data = 0;                       // and until batches were there
  double compute() const { return seconds - messages - collectives - data; }
};

// Milliseconds per step of every rank (of more than 16 the five that compute longest, the one in the middle and the one that
// computes shortest), and by how much the one that computes longest exceeds the median. Collective; a text on rank 0. Who
// computes longest waits least: the others' waiting is its work.
std::string straggler_table(const RankTimes& mine, const Communicator& world);

// Adds what passes between its calls to a rank's times.
class StepClock {
 public:
  explicit StepClock(RankTimes* times) : times_(times) {}
  void start();               // what was before does not count
  void batch(double waited);  // one is there, for which the rank has waited so long since start(), batch() or step()
  void step();                // one has ended, since start() or the step before

 private:
  RankTimes* times_;
  double seconds_ = 0, messages_ = 0, collectives_ = 0, data_ = 0, seen_ = 0;
};

}  // namespace mpigrad
