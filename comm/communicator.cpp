#include "comm/communicator.h"

#include <atomic>

#include "comm/messages/messages.h"
#include "comm/messages/transfer.h"
#include "comm/transport/device/device_transport.h"
#include "comm/transport/watch/checks.h"
#include "comm/transport/watch/watched_transport.h"

namespace mpigrad {

namespace {
std::atomic<std::uint64_t> communicators_made{0};
}

Communicator::Communicator(std::shared_ptr<Transport> transport) {
  if (!transport) return;
  State state;
  state.plain_main = watched(std::move(transport));
  state.plain_side = state.plain_main->duplicate();
  state.mode = default_summation_mode();
  state.main = with_mode(state.plain_main, state.mode);
  state.side = with_mode(state.plain_side, state.mode);
  state.number = ++communicators_made;
  state.messages = std::make_shared<detail::Messages>();
  state.open_collectives = std::make_shared<detail::OpenCollectives>();
  state_ = std::make_shared<State>(std::move(state));
}

Communicator Communicator::with(const SummationMode& mode) const {
  Communicator result;
  State other = state();
  other.main = with_mode(other.plain_main, mode);
  other.side = with_mode(other.plain_side, mode);
  other.reductions = other.device_main = other.device_side = other.device_reductions = nullptr;
  other.mode = mode;
  other.number = ++communicators_made;
  result.state_ = std::make_shared<State>(std::move(other));
  return result;
}

Transport& Communicator::reductions() const {
  auto& own = *state().main;
  if (!state_->reductions) state_->reductions = own.duplicate();
  return *state_->reductions;
}

namespace {

Transport& on_gpu(std::shared_ptr<Transport>& made, const std::shared_ptr<Transport>& host, const SummationMode& mode,
                  Lane lane) {
  if (!made) made = device_transport(host, mode, lane, cuda_memory(), gpu_place());
  return *made;
}

}  // namespace

Transport& Communicator::transport(DeviceKind device) const {
  if (device != DeviceKind::cuda) return transport();
  return on_gpu(state().device_main, state().main, state().mode, Lane::halos);
}
Transport& Communicator::side(DeviceKind device) const {
  if (device != DeviceKind::cuda) return side();
  return on_gpu(state().device_side, state().side, state().mode, Lane::halos);
}
Transport& Communicator::reductions(DeviceKind device) const {
  if (device != DeviceKind::cuda) return reductions();
  if (!state().device_reductions) reductions();
  return on_gpu(state().device_reductions, state().reductions, state().mode, Lane::buckets);
}

Communicator Communicator::split(int color, int key) const { return Communicator(transport().split(color, key)); }

bool Communicator::moves(const Tensor& x) const { return (x.device() == DeviceKind::dry) != transport().can_ask(); }

}  // namespace mpigrad
