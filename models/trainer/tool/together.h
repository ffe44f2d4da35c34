#pragma once
// Errors that end all ranks of a program in the same way, with one message.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/together.h"
#include "comm/transport/transport.h"
#include "framework/base/error.h"

namespace mpigrad::tool {

// Invalid arguments: one line, exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// Printed once; exit code 1 on all ranks.
using mpigrad::SharedError;

// mpigrad::together (comm/together.h), for errors that may be a UsageError.
void together(Transport& transport, const std::function<void()>& f);
inline void together(const Communicator& comm, const std::function<void()>& f) { together(comm.transport(), f); }

// A 64-bit hash of the texts and their order.
std::uint64_t fingerprint(const std::vector<std::string>& texts);
// The first difference between a rank's texts and rank 0's.
struct Difference {
  int rank = 0;
  std::size_t place = 0;             // index of the first difference; may be the end of either
  std::vector<std::string> first{};  // rank 0's texts
};
// Requires texts to be the same on all ranks, such as arguments, or the contents of files that each rank reads for itself.
// Collective; each rank sends a hash. If they differ, `refuse` is called on the first rank that differs, and all ranks throw what
// it throws, as in together.
void require_same(Transport& transport, const std::vector<std::string>& texts,
                  const std::function<void(const Difference&)>& refuse);

// For errors that are neither shared nor known to concern only one rank. Ranks in processes do not see each other's errors; ranks
// in threads do not need this.
class ErrorRendezvous {
 public:
  explicit ErrorRendezvous(Transport& transport);  // collective
  // Called by a rank that ends with an error. If all ranks do within 3 s, no rank waits for another: their messages are
  // printed, equal ones once, and all ranks get true. Otherwise false: other ranks wait for this rank and must be ended.
  bool all_end(const std::string& error);

 private:
  std::shared_ptr<Transport> transport_;  // used for nothing else, so that its calls cannot be confused with others
};

}  // namespace mpigrad::tool
