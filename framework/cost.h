#pragma once
// Counts what ops do while it is alive on this thread: layer tables, planners, profiles.

#include <string_view>
#include <vector>

#include "framework/tensor/shape.h"

namespace mpigrad {

class CostLog {
 public:
  struct Line {
    std::string_view op;
    double flops = 0, bytes = 0;
    double start = 0;    // of the process's steady clock, in seconds
    double seconds = 0;  // on this thread, allocation of the outputs included
    bool communicates = false;
    std::vector<Shape> inputs, outputs;
  };
  std::vector<Line> lines;

  CostLog();
  ~CostLog();
  CostLog(const CostLog&) = delete;
  CostLog& operator=(const CostLog&) = delete;

 private:
  CostLog* previous_;
};

}  // namespace mpigrad
