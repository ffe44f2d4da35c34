#pragma once
// Counts what ops do while it is alive on this thread, whether or not others are: layer tables, planners, profiles.

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
    double start = 0;    // of the process's steady clock, in seconds
    double seconds = 0;  // on this thread, allocation of the outputs included
    bool communicates = false;
    std::vector<Shape> inputs, outputs;
    std::vector<DType> input_types, output_types;
  };
  std::vector<Line> lines;
  std::function<void()> told{};  // called behind each line

  CostLog();
  ~CostLog();
  CostLog(const CostLog&) = delete;
  CostLog& operator=(const CostLog&) = delete;
  // To all that are alive on this thread.
  static void add(const Line& line);
  // While it is alive, ops of this thread are nobody's.
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
