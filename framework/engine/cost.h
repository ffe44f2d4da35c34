#pragma once
// Records the costs of ops on this thread while in scope, independently of other logs: for layer tables, planners and profiles.

#include <functional>
#include <string_view>
#include <vector>

#include "framework/tensor/dtype.h"
#include "framework/tensor/shape.h"

namespace mpigrad {

class CostLog {
 public:
  struct Line {
    std::string_view op;
    double flops = 0, bytes = 0;
    double start = 0;    // on the steady clock of the process, in seconds
    double seconds = 0;  // on this thread, allocation of the outputs included
    bool communicates = false;
    std::vector<Shape> inputs, outputs;
    std::vector<DType> input_types, output_types;
  };
  std::vector<Line> lines;
  std::function<void()> told{};  // called after each line

  CostLog();
  ~CostLog();
  CostLog(const CostLog&) = delete;
  CostLog& operator=(const CostLog&) = delete;
  // Adds a line to all logs of this thread.
  static void add(const Line& line);
  // Suspends cost recording on this thread while in scope.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    CostLog* before_;
  };

 private:
  CostLog* previous_;
};

}  // namespace mpigrad
