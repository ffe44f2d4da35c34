#ifndef MPIGRAD_COMM_TRANSPORT_TRANSPORT_SET_H
#define MPIGRAD_COMM_TRANSPORT_TRANSPORT_SET_H
// The transports of one communicator, and how they are stacked. Calls of one line never match calls of another one.

#include <memory>
#include <utility>

#include "comm/transport/summation_mode.h"
#include "comm/transport/transport.h"
#include "framework/tensor/device.h"

namespace mpigrad {

struct TransportSet {
  // A host transport and, made at its first use, one for buffers on this rank's GPU (comm/transport/device/device_transport.h).
  struct Line {
    std::shared_ptr<Transport> host, gpu{};
    Lane lane = Lane::halos;

    Transport& on(DeviceKind device);
  };

  // Collective. `transport` is watched as the environment requests (comm/transport/watch/checks.h) and adds up by
  // inherited_mode(); `side` is a duplicate.
  explicit TransportSet(std::shared_ptr<Transport> transport);
  // Local: the same ranks and messages, with another mode of sums.
  TransportSet with(const SummationMode& mode) const;

  // A duplicate of `main`. Collective at the first use.
  Line& reductions();

  Line main, side;

 private:
  TransportSet(std::shared_ptr<Transport> main_host, std::shared_ptr<Transport> side_host)
      : main{std::move(main_host)}, side{std::move(side_host)} {}

  Line reductions_{.host = nullptr, .lane = Lane::buckets};
};

}  // namespace mpigrad

#endif
