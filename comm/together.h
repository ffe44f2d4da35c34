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
// Among the ranks of a transport; without one (null), f runs on this process only, and what it throws is not changed.
void together(Transport* transport, const std::function<void()>& f);

// The text of rank `root`, on all ranks. Collective.
std::string text_of_rank(Transport& transport, std::string text, int root = 0);

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
