#include "models/train/tensorboard/events.h"

#include <event.pb.h>
#include <fcntl.h>

#include <chrono>
#include <cmath>
#include <optional>

#include "framework/base/new_file.h"
#include "models/data/records/frames.h"

namespace mpigrad::tensorboard {
namespace {

double wall_seconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

struct EventFile::State {
  std::filesystem::path path;
  std::optional<GrowingFile> file{};

  void write(const Event& event) {
    const auto record = data::framed(event.SerializeAsString());
    file->write(record);
  }

  void open() {
    file.emplace(path, O_WRONLY | O_TRUNC, "tensorboard");
    Event first;
    first.set_wall_time(wall_seconds());
    first.set_file_version("brain.Event:2");
    write(first);
  }
};

bool available() { return true; }

EventFile::EventFile(const std::filesystem::path& path) : state_(new State{.path = path}) {}
EventFile::~EventFile() = default;

void EventFile::scalars(std::int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  if (!state_->file) state_->open();
  Event event;
  event.set_wall_time(wall_seconds());
  event.set_step(step);
  for (const auto& [tag, number] : values) {
    if (!std::isfinite(number)) continue;
    auto* value = event.mutable_summary()->add_value();
    value->set_tag(tag);
    value->set_simple_value(static_cast<float>(number));
  }
  state_->write(event);
}

}  // namespace mpigrad::tensorboard
