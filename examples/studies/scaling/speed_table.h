#pragma once
// The measurements of `scaling speed`, as a table, a picture and files.

#include <cstdint>
#include <string>
#include <vector>

#include "comm/distributed/grid.h"
#include "examples/studies/scaling/commands.h"

namespace mpigrad::scaling {

// A grid and its runs.
struct Measured {
  std::string grid{};  // "sample=2,depth=2", axes of 1 left out
  std::string way{};   // the axes that it splits, "sample+depth"; empty: one rank
  int ranks = 1;
  std::int64_t batch = 0;
  std::vector<double> rates{}, silent_rates{};  // samples per second of training; without communication
  std::vector<double> waiting{};                // for data, as fractions of the training's time; empty: unknown
  double seconds = 0;                           // duration of the shortest training
  std::int64_t bytes = 0;                       // on the rank with the most: of the process, or of its GPU
  std::string failure{};                        // empty: there was none
  std::string silent_failure{};                 // failure of a run without communication
};

struct SpeedStudy {
  std::string name, mode, command;
  std::int64_t repeats = 1, threads = 1;
  int cores_here = 0;          // if all ranks share this machine; 0: they do not, or it is unknown
  std::string never_silent{};  // why the trainer cannot run without communication; empty: it can
  bool interrupted = false;
  std::vector<Measured> grids{};  // the first is the reference of speed-ups
};

// The study's file name in --out: "speed-NAME-MODE" without extension.
std::string file_of(const SpeedStudy& study);
// Writes the study's files and report.html, and prints the table.
void tell(const SpeedStudy& study, const SpeedOptions& options);

}  // namespace mpigrad::scaling
