#pragma once
// The state of a simulation's ranks: their positions, next events, and what they wait for. Not installed.

#include "examples/studies/plan/planner/simulation/program.h"

namespace mpigrad::planner::simulated {

// Seconds on the critical path up to now, by kind, since the step began on it.
struct Path {
  double work = 0, halos = 0, collectives = 0;
};

// Calls under way: those that a rank waits for, or the first of the started ones.
struct Slot {
  int calls = -1, step = 0;  // calls -1: none
  int pending = 0, stage = 0;
  double posted = 0, end = 0;
  Path path{};
};

struct Rank {
  int item = 0, step = 0;
  int started = 0, done = 0;  // of the started calls, in all steps
  int base = 0;               // started calls of the previous steps
  bool waits = false;
  int needed = 0;    // number of calls that must be done before the wait ends
  double since = 0;  // start of the current wait
  double began = 0;  // start of its step
  Path path{};
  Slot slots[2];
};

struct Event {
  enum What : int { messages, collective, go_on };
  double time = 0;
  What what = go_on;
  int id = 0;  // a rank; 2 * rank + slot; a group
  // Events at the same time have a defined order, independent of insertion.
  bool operator>(const Event& other) const {
    if (time != other.time) return time > other.time;
    return what != other.what ? what > other.what : id > other.id;
  }
};

// Messages of the program, translated for all ranks.
struct Translation {
  GridPlace offset{};
  int distance = 0;  // difference of rank numbers
};

// The participants of a subgrid's collective.
struct Meeting {
  int arrived = 0;
  Path path{};
};

// The other end of a message, and its data.
struct Way {
  int other = 0, calls = 0;
  bool sends = false;  // true: this rank sends
  double bytes = 0, within = -1;
  bool whole = true;  // both ends exist
};

}  // namespace mpigrad::planner::simulated
