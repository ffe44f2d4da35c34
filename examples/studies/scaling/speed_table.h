#pragma once
// What `scaling speed` measured, as a table, a picture and files.

#include <cstdint>
#include <string>
#include <vector>

#include "comm/distributed/grid.h"
#include "examples/studies/scaling/commands.h"

namespace mpigrad::scaling {

// A grid and its runs.
struct Measured {
  std::string grid{};  // "sample=2,depth=2", axes of 1 left out
  std::string way{};   // what it splits, "sample+depth"; empty: nothing, it is one rank
  int ranks = 1;
  std::int64_t batch = 0;
  std::vector<double> rates{}, silent_rates{};  // samples per second of training; without communication
  std::vector<double> waiting{};                // for data, as shares of the time of training; empty: the trainer does not say
  double seconds = 0;                           // of the shortest training
  std::int64_t bytes = 0;                       // of the rank that has most: the process's, or of its GPU
  std::string failure{};                        // empty: there was none
  std::string silent_failure{};                 // of a run without communication
};

struct SpeedStudy {
  std::string name, mode, command;
  std::int64_t repeats = 1, threads = 1;
  int cores_here = 0;          // where all ranks share this machine; 0: they do not, or nobody knows
  std::string never_silent{};  // why the trainer cannot run without communication; empty: it can
  bool interrupted = false;
  std::vector<Measured> grids{};  // the first is what speed-ups are against
};

// Of that study, in --out: "speed-NAME-MODE" without its ending.
std::string file_of(const SpeedStudy& study);
// Writes its files and report.html, and prints.
void tell(const SpeedStudy& study, const SpeedOptions& options);

}  // namespace mpigrad::scaling
