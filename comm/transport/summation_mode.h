#ifndef MPIGRAD_COMM_TRANSPORT_SUMMATION_MODE_H
#define MPIGRAD_COMM_TRANSPORT_SUMMATION_MODE_H
// The order and the precision in which a communicator computes sums.

#include <memory>
#include <string_view>

#include "comm/transport/transport.h"

namespace mpigrad {

struct SummationMode {
  // Sums in the order of ranks, bitwise the same from run to run and on every transport: all parts are sent to the rank that adds
  // them up. Blocking calls move at most twice the data of an ordinary allreduce; non-blocking ones gather all ranks' tensors.
  bool fixed_order = false;
  // bfloat16 and float16 travel as they are, and each combining step is computed in float32 and rounded. If false, they travel
  // and are reduced as float32, and the result is rounded once.
  bool sixteen_bit = false;
  bool operator==(const SummationMode&) const = default;
};

// The mode in the environment variable MPIGRAD_REDUCTIONS, the default of all communicators: "fixed" and "16bit", separated by a
// comma. Error: any other word.
SummationMode parse_summation_mode(std::string_view text);
SummationMode default_summation_mode();
// The mode that with_mode() gave `transport`, or the transport that it was made from; for other transports the default.
SummationMode mode_of(const Transport& transport);
// The mode of a communicator made from `transport`: mode_of(), with a fixed order in any case after set_fixed_order(true).
SummationMode inherited_mode(const Transport& transport);

// `transport` with that mode, instead of the mode of an earlier with_mode(). No new communicator is made; subgroups, splits and
// duplicates keep the mode. Buffers lie in `memory`; null: host memory.
class DeviceMemory;
std::shared_ptr<Transport> with_mode(std::shared_ptr<Transport> transport, const SummationMode& mode,
                                     std::shared_ptr<DeviceMemory> memory = nullptr);

}  // namespace mpigrad

#endif
