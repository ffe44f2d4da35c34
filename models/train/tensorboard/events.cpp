#include "models/train/tensorboard/events.h"

#include <event.pb.h>

#include <chrono>
#include <cmath>
#include <cstdio>

#include "framework/error.h"
#include "models/data/records/frames.h"

namespace mpigrad::tensorboard {
namespace {

double wall_seconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

struct EventFile::State {
  std::filesystem::path path;
  std::unique_ptr<std::FILE, Close> file{};

  void write(const Event& event) {
    const auto record = data::framed(event.SerializeAsString());
    const bool written = std::fwrite(record.data(), 1, record.size(), file.get()) == record.size();
    require(written && std::fflush(file.get()) == 0, "[tensorboard] {} could not be written completely", path.string());
  }

  void open() {
    file.reset(std::fopen(path.c_str(), "wb"));
    require(file != nullptr, "[tensorboard] {} cannot be written", path.string());
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
