#pragma once
// The exercises of the lessons in one program: exercises.py makes the files that register them.

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

struct Registered {
  Registered(const char* name_, const char* variant_, const char* title_,
             std::function<void(const mpigrad::Communicator&)> body_);
  std::string name, variant;
  const char* title;
  std::function<void(const mpigrad::Communicator&)> body;
};
