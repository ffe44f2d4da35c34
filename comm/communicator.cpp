#include "comm/communicator.h"

namespace mpigrad {

Communicator::Communicator(std::shared_ptr<Transport> transport) {
  if (transport) state_ = std::make_shared<State>(State{std::move(transport), nullptr});
}

Transport& Communicator::reductions() const {
  if (!state_->reductions) state_->reductions = state_->main->duplicate();
  return *state_->reductions;
}

Communicator Communicator::split(int color, int key) const { return Communicator(transport().split(color, key)); }

bool Communicator::moves(const Tensor& x) const { return (x.device() == DeviceKind::dry) == (transport().name() == "dry"); }

}  // namespace mpigrad
