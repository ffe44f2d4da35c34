#pragma once
// Where ranks of a simulation are, what comes next, and what they wait for. Not installed.

#include "examples/studies/plan/planner/simulation/program.h"

namespace mpigrad::planner::simulated {

// Sums of seconds on the way that led to now, since the step began where the way did.
struct Path {
  double work = 0, halos = 0, collectives = 0;
};

// Calls under way: those a rank stands still for, or the first of those that were started.
struct Slot {
  int calls = -1, step = 0;  // calls -1: none
  int pending = 0, stage = 0;
  double posted = 0, end = 0;
  Path path{};
};

struct Rank {
  int item = 0, step = 0;
  int started = 0, done = 0;  // calls beside, in all steps
  int base = 0;               // of them in the steps before
  bool waits = false;
  int needed = 0;    // calls that are to be done where it waits
  double since = 0;  // where it stands still: since then
  double began = 0;  // its step
  Path path{};
  Slot slots[2];
};

struct Event {
  enum What : int { messages, collective, go_on };
  double time = 0;
  What what = go_on;
  int id = 0;  // a rank; 2 * rank + slot; a group
  // What happens at the same time has an order of its own, not that of insertion.
  bool operator>(const Event& other) const {
    if (time != other.time) return time > other.time;
    return what != other.what ? what > other.what : id > other.id;
  }
};

// Messages of the program with what they are to all ranks.
struct Translation {
  GridPlace offset{};
  int distance = 0;  // of rank numbers
};

// Where the ranks of a subgrid meet.
struct Meeting {
  int arrived = 0;
  Path path{};
};

// The other end of a message, and what goes between.
struct Way {
  int other = 0, calls = 0;
  bool sends = false;  // this one
  double bytes = 0, within = -1;
  bool whole = true;  // both ends are there
};

}  // namespace mpigrad::planner::simulated
