#include <fmt/format.h>

#include "models/tensorboard/events.h"

namespace mpigrad::tensorboard {

// "tfevents" is what TensorBoard looks for.
std::string event_file_name(std::int64_t first_step) { return fmt::format("events.out.tfevents.{:010}.mpigrad", first_step); }

}  // namespace mpigrad::tensorboard
