#ifndef MPIGRAD_COMM_COMMUNICATOR_H
#define MPIGRAD_COMM_COMMUNICATOR_H
// A group of ranks that communicate: one rank's handle of it. Making a communicator is collective over its ranks.

#include <memory>
#include <span>
#include <vector>

#include "comm/transport/transport_set.h"
#include "framework/tensor/tensor.h"

namespace mpigrad {

namespace detail {
class Messages;
struct OpenCollectives;
}  // namespace detail

class Communicator {
 public:
  Communicator() = default;
  explicit Communicator(std::shared_ptr<Transport> transport);

  explicit operator bool() const { return state_ != nullptr; }
  int rank() const { return transport().rank(); }
  int size() const { return transport().size(); }
  Transport& transport() const { return *shared_transport(); }
  const std::shared_ptr<Transport>& shared_transport() const { return state().transports.main.host; }
  // Private duplicates of the communicator. side(): messages and collectives of adjoints, and exchanges of boxes. reductions():
  // reductions of parameters that run while other calls continue; made, collectively, at its first use.
  Transport& side() const { return *state().transports.side.host; }
  Transport& reductions() const { return reductions(DeviceKind::cpu); }
  // The same for buffers on a device. Host memory and the dry device use the transports above; a GPU uses those of
  // comm/transport/device/device_transport.h, which are made at their first use. Making one is local; ranks meet only in its
  // first collective or round of messages (Transport::start_round, which all ranks call at the same place).
  Transport& transport(DeviceKind device) const { return state().transports.main.on(device); }
  Transport& side(DeviceKind device) const { return state().transports.side.on(device); }
  Transport& reductions(DeviceKind device) const { return state().transports.reductions().on(device); }
  // Identity of the communicator, for memoisation.
  const void* key() const { return state_.get(); }
  // Number of the communicator, counted from 1 in the order in which this process made communicators. Ranks that make theirs in
  // the same order have the same numbers.
  std::uint64_t number() const { return state().number; }

  // The same ranks and messages, with another mode of sums.
  Communicator with(const SummationMode& mode) const;
  // New communicators with the same mode of sums.
  Communicator split(int color, int key) const { return Communicator(transport().split(color, key)); }
  Communicator duplicate() const { return Communicator(transport().duplicate()); }
  Communicator subgroup(std::span<const int> ranks) const { return Communicator(transport().subgroup(ranks)); }

  // State of point-to-point and non-blocking calls (comm/messages/messages.h, comm/messages/transfer.h).
  detail::Messages& messages() const { return *state().messages; }
  const std::shared_ptr<detail::Messages>& shared_messages() const { return state().messages; }
  const std::shared_ptr<detail::OpenCollectives>& open_collectives() const { return state().open_collectives; }

  // Whether calls with x run. On a real transport, tensors of the dry device are skipped, so that a network can be laid out
  // before training; on the dry transport they are counted.
  bool moves(const Tensor& x) const;

 private:
  struct State {
    TransportSet transports;
    std::uint64_t number = 0;
    std::shared_ptr<detail::Messages> messages;
    std::shared_ptr<detail::OpenCollectives> open_collectives;
  };
  State& state() const {
    require(state_ != nullptr, "[communicator] this rank is not a member of the communicator");
    return *state_;
  }
  std::shared_ptr<State> state_;
};

}  // namespace mpigrad

#endif
