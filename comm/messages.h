#pragma once
// Which message is which. MPI matches messages in the order in which they are posted; adjoints are posted in the reverse order of
// the waits, which may differ between two ranks. So an adjoint message carries the identity of its forward message: tag and
// number among those with the same peer, direction and tag, in posting order. Used inside comm only.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "comm/transport.h"

namespace mpigrad::detail {

// The messages of one rank on one communicator.
class Messages {
 public:
  // Number of the next message to `dest` with `tag`.
  std::int64_t send(int dest, int tag) { return sent_[{dest, tag}]++; }

  // A receive gets its number when it and all posted before it know their source and tag: one that takes any may have taken the
  // message before.
  struct Receive {
    Status status;
    bool arrived = false;
    std::int64_t number = -1;
  };
  std::shared_ptr<Receive> post();
  void arrive(Receive& receive, Status status);

 private:
  std::map<std::pair<int, int>, std::int64_t> sent_, received_;
  std::deque<std::shared_ptr<Receive>> posted_;  // from the first without a number
};

// Tags of forward messages whose adjoint is to be found again are below this: half of the bits that the transport's tags have,
// less the last tag, which other traffic uses.
int recorded_tags(const Transport& transport);
// The tag of the adjoint of the number-th message with `tag`.
int identity_tag(const Transport& transport, int tag, std::int64_t number);

}  // namespace mpigrad::detail
