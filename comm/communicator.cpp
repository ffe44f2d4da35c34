#include "comm/communicator.h"

#include <atomic>

#include "comm/messages/messages.h"
#include "comm/messages/transfer.h"

namespace mpigrad {

namespace {
std::atomic<std::uint64_t> communicators_made{0};
}

Communicator::Communicator(std::shared_ptr<Transport> transport) {
  if (!transport) return;
  TransportSet transports(std::move(transport));
  state_ = std::make_shared<State>(State{std::move(transports), ++communicators_made, std::make_shared<detail::Messages>(),
                                         std::make_shared<detail::OpenCollectives>()});
}

Communicator Communicator::with(const SummationMode& mode) const {
  const auto& own = state();
  Communicator result;
  result.state_ =
      std::make_shared<State>(State{own.transports.with(mode), ++communicators_made, own.messages, own.open_collectives});
  return result;
}

bool Communicator::moves(const Tensor& x) const { return (x.device() == DeviceKind::dry) != transport().can_ask(); }

}  // namespace mpigrad
