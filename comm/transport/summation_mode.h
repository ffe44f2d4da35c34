#ifndef MPIGRAD_COMM_TRANSPORT_SUMMATION_MODE_H
#define MPIGRAD_COMM_TRANSPORT_SUMMATION_MODE_H
// How a communicator adds up.

#include <memory>
#include <string_view>

#include "comm/transport/transport.h"

namespace mpigrad {

struct SummationMode {
  // Sums in the order of ranks, bitwise the same from run to run and on every transport: the parts travel to the rank that adds
  // them up. Blocking calls move twice the data of an ordinary allreduce at most; non-blocking ones gather all ranks' tensors.
  bool fixed_order = false;
  // bfloat16 and float16 travel as they are, and each combining step is computed in float32 and rounded. Otherwise they travel,
  // and are reduced, as float32, and the result is rounded once.
  bool sixteen_bit = false;
  bool operator==(const SummationMode&) const = default;
};

// Of the environment variable MPIGRAD_REDUCTIONS, which all communicators have that are not told otherwise: "fixed" and "16bit",
// separated by a comma. Error: any other word.
SummationMode parse_summation_mode(std::string_view text);
SummationMode default_summation_mode();
// The mode that with_mode() gave `transport`, or what it was made of; of other transports the default.
SummationMode mode_of(const Transport& transport);
// The mode of a communicator made of `transport`: the same, but after set_fixed_order(true) with a fixed order in any case.
SummationMode inherited_mode(const Transport& transport);

// `transport` with that mode, instead of the one that an earlier with_mode() gave it. No new communicator; subgroups, splits and
// duplicates keep the mode. Buffers lie in `memory`; none is the host's.
class DeviceMemory;
std::shared_ptr<Transport> with_mode(std::shared_ptr<Transport> transport, const SummationMode& mode,
                                     std::shared_ptr<DeviceMemory> memory = nullptr);

}  // namespace mpigrad

#endif
