#pragma once
// Errors that end all ranks of a program alike, with one message.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/together.h"
#include "comm/transport/transport.h"
#include "framework/base/error.h"

namespace mpigrad::tool {

// Arguments that make no sense: one line, exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// Printed once, exit code 1 everywhere.
using mpigrad::SharedError;

// mpigrad::together (comm/together.h), where an error may be a UsageError, too.
void together(Transport& transport, const std::function<void()>& f);
inline void together(const Communicator& comm, const std::function<void()>& f) { together(comm.transport(), f); }

// Eight bytes that differ where the texts do, or their order.
std::uint64_t fingerprint(const std::vector<std::string>& texts);
// Where a rank's texts differ from rank 0's.
struct Difference {
  int rank = 0;
  std::size_t place = 0;             // the first one; may be the end of either
  std::vector<std::string> first{};  // rank 0's texts
};
// Texts that must be the same on all ranks, such as arguments, or what each rank found in files that it reads for itself.
// Collective; a fingerprint of each rank travels. If they differ, `refuse` is called on the first rank that differs, and what it
// throws all throw, as in together.
void require_same(Transport& transport, const std::vector<std::string>& texts,
                  const std::function<void(const Difference&)>& refuse);

// For errors that are neither shared nor known to be one rank's own. Ranks in processes know nothing of each other's; ranks in
// threads need nothing of this.
class ErrorRendezvous {
 public:
  explicit ErrorRendezvous(Transport& transport);  // collective
  // Called by a rank that ends with an error. If within half a second all ranks do, they have nothing to wait for: what they say
  // is printed, the same text once, and all get true. Else false: the others wait somewhere for this rank, and must be ended.
  bool all_end(const std::string& error);

 private:
  std::shared_ptr<Transport> transport_;  // for nothing else, so that no other call can be mistaken for this
};

}  // namespace mpigrad::tool
