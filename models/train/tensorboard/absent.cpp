#include "framework/base/error.h"
#include "models/train/tensorboard/events.h"

namespace mpigrad::tensorboard {

struct EventFile::State {};

bool available() { return false; }

EventFile::EventFile(const std::filesystem::path& path) {
  fail("[tensorboard] {}: this build writes no event files; install libprotobuf-dev and protobuf-compiler", path.string());
}
EventFile::~EventFile() = default;
void EventFile::scalars(std::int64_t, const std::vector<std::pair<std::string, double>>&) {}

}  // namespace mpigrad::tensorboard
