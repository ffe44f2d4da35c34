#include "comm/transport/transport_set.h"

#include "comm/transport/device/device_transport.h"
#include "comm/transport/watch/checks.h"

namespace mpigrad {

TransportSet::TransportSet(std::shared_ptr<Transport> transport) {
  const auto mode = inherited_mode(*transport);
  main.host = with_mode(watched(std::move(transport)), mode);
  side.host = main.host->duplicate();
}

TransportSet TransportSet::with(const SummationMode& mode) const {
  return {with_mode(main.host, mode), with_mode(side.host, mode)};
}

TransportSet::Line& TransportSet::reductions() {
  if (!reductions_.host) reductions_.host = main.host->duplicate();
  return reductions_;
}

Transport& TransportSet::Line::on(DeviceKind device) {
  if (device != DeviceKind::cuda) return *host;
  if (!gpu) gpu = device_transport(host, mode_of(*host), lane, cuda_memory(), gpu_place());
  return *gpu;
}

}  // namespace mpigrad
