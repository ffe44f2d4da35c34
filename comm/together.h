#pragma once
// Errors that end all ranks alike, with one message.

#include <cstdint>
#include <functional>
#include <string>

#include "comm/communicator.h"
#include "framework/base/error.h"

namespace mpigrad {

// An error that all ranks have.
class SharedError : public Error {
 public:
  using Error::Error;
};

// Runs f on every rank; if it fails anywhere, all ranks throw what the first of those says, as a SharedError. Collective; f must
// not communicate after a point where it can fail on some ranks only.
void together(const Communicator& comm, const std::function<void()>& f);

namespace detail {

// What the first rank that failed says; none: `failed` is false. `kind` tells errors apart that are to be thrown as such.
struct Failure {
  bool failed = false;
  std::string text;
  std::int64_t kind = 0;
};
Failure first_failure(Transport& transport, const std::function<void()>& f,
                      const std::function<std::int64_t(const std::exception&)>& kind = {});

}  // namespace detail
}  // namespace mpigrad
