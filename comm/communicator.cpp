#include "comm/communicator.h"

#include <atomic>

#include "comm/messages.h"
#include "comm/transfer.h"

namespace mpigrad {

Communicator::Communicator(std::shared_ptr<Transport> transport) {
  static std::atomic<std::uint64_t> made{0};
  if (!transport) return;
  auto side = transport->duplicate();
  state_ = std::make_shared<State>(State{std::move(transport), std::move(side), nullptr, ++made,
                                         std::make_shared<detail::Messages>(), std::make_shared<detail::OpenCollectives>()});
}

Transport& Communicator::reductions() const {
  auto& own = *state().main;
  if (!state_->reductions) state_->reductions = own.duplicate();
  return *state_->reductions;
}

Communicator Communicator::split(int color, int key) const { return Communicator(transport().split(color, key)); }

bool Communicator::moves(const Tensor& x) const { return (x.device() == DeviceKind::dry) == (transport().name() == "dry"); }

}  // namespace mpigrad
