#pragma once
// Errors that end all ranks of a program alike, with one message.

#include <functional>

#include "comm/transport.h"
#include "framework/error.h"

namespace mpigrad::tool {

// Arguments that make no sense: one line, exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// An error that all ranks have: printed once, exit code 1 everywhere.
class SharedError : public Error {
 public:
  using Error::Error;
};

// Runs f on every rank; if it fails anywhere, all ranks throw what the first of those says, as a SharedError or a UsageError.
// Collective; f must not communicate after a point where it can fail on some ranks only.
void together(Transport& transport, const std::function<void()>& f);

}  // namespace mpigrad::tool
