// Built without nlohmann-json.

#include "models/networks/described/described.h"

namespace mpigrad {

NetworkDescription describe_network(const std::filesystem::path& weights, const CheckpointInfo&) {
  fail("[weights] the notes of {} cannot be read: this build has no JSON; install nlohmann-json3-dev and configure again",
       weights.string());
}

}  // namespace mpigrad
