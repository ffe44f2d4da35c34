#pragma once
// Errors that are raised on all ranks with the same message.

#include <cstdint>
#include <functional>
#include <string>

#include "comm/communicator.h"
#include "framework/base/error.h"

namespace mpigrad {

// An error that is raised on all ranks.
class SharedError : public Error {
 public:
  using Error::Error;
};

// Runs f on every rank. If it fails on any rank, all ranks throw a SharedError with the message of the lowest rank that failed.
// Collective; f must not communicate after a point where it can fail on some ranks only.
void together(const Communicator& comm, const std::function<void()>& f);
// The same over the ranks of a transport. Without one (null), f runs on this process only, and its exception is not changed.
void together(Transport* transport, const std::function<void()>& f);

// The text of rank `root`, on all ranks. Collective.
std::string text_of_rank(Transport& transport, std::string text, int root = 0);

namespace detail {

// The message of the first rank that failed; `failed` is false if none did. `kind` classifies errors that are rethrown as their
// own type.
struct Failure {
  bool failed = false;
  std::string text;
  std::int64_t kind = 0;
};
Failure first_failure(Transport& transport, const std::function<void()>& f,
                      const std::function<std::int64_t(const std::exception&)>& kind = {});

}  // namespace detail
}  // namespace mpigrad
