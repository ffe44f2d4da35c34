#pragma once
// The identity of messages. MPI matches messages in the order in which they are posted; adjoints are posted in the reverse order
// of the waits, which may differ between two ranks. Therefore an adjoint message carries the identity of its forward message: the
// tag, and the number among the messages with the same peer, direction and tag, in posting order. Used inside comm only.
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "comm/transport/transport.h"

namespace mpigrad::detail {

// The messages of one rank on one communicator.
class Messages {
  struct Stream;

 public:
  struct Numbered {
    int peer = proc_null, tag = 0;  // of a receive with wildcards: those of the message, once it has been waited for
    std::int64_t number = -1;       // not set while a receive posted before may have taken the message
    std::int64_t waited = -1;       // time of the wait, as a count of this rank's waits
    // This message was waited for before the last one with the same adjoint tag; the other rank may wait in the reverse order.
    bool ambiguous = false;

   private:
    friend Messages;
    Stream* stream = nullptr;
  };

  std::shared_ptr<Numbered> send(int dest, int tag);
  std::shared_ptr<Numbered> receive(int source, int tag);
  // `identities`: the number of messages that adjoint tags can tell apart.
  void waited(Numbered& message, std::int64_t identities);
  // A receive has been given up, and it is unknown whether it took a message: later receives stay without a number.
  void lose() { lost_ = true; }

 private:
  struct Last {
    std::int64_t number = -1, waited = -1;
  };
  struct Stream {
    std::int64_t next = 0;
    std::vector<Last> last;  // by adjoint tag
  };

  void number_receives(std::int64_t identities);
  static void compare(Numbered& message, std::int64_t identities);

  std::int64_t waits_ = 0;
  bool lost_ = false;
  std::map<std::pair<int, int>, Stream> sent_, received_;
  std::list<std::shared_ptr<Numbered>> unnumbered_;  // receives, in the order of posting
};

// Upper bound of the tags of forward messages whose adjoints must be identified: half of the bits of the transport's tags, minus
// the last tag, which other traffic uses.
int recorded_tags(const Transport& transport);
// The tag of the adjoint of the number-th message with `tag`.
int identity_tag(const Transport& transport, int tag, std::int64_t number);

}  // namespace mpigrad::detail
