#include "models/data/records/example.h"

#include <example.pb.h>

#include <algorithm>
#include <limits>

#include "framework/error.h"
#include "framework/joined.h"
#include "framework/tensor/printable.h"

namespace mpigrad::data {

struct Example::State {
  std::string file;
  proto::Example message{};

  const proto::Feature& feature(const std::string& name) const {
    const auto& features = message.features().feature();
    if (const auto found = features.find(name); found != features.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [key, value] : features) names.push_back(printable(key, 40));
    std::sort(names.begin(), names.end());
    if (names.size() > 20) names.resize(20), names.emplace_back("...");
    fail("[tfrecord] {}: a record has no '{}'; it has: {}", file, printable(name),
         names.empty() ? "nothing" : joined(names, ", "));
  }
};

bool examples_available() { return true; }

Example::Example(std::string_view record, const std::string& file) : state_(new State{.file = file}) {
  const bool fits = record.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max());
  require(fits && state_->message.ParseFromArray(record.data(), static_cast<int>(record.size())),
          "[tfrecord] {}: a record is no tf.train.Example", file);
}
Example::~Example() = default;

std::string_view Example::bytes(const std::string& name) const {
  const auto& feature = state_->feature(name);
  require(feature.has_bytes_list() && feature.bytes_list().value_size() == 1, "[tfrecord] {}: '{}' is not one string of bytes",
          state_->file, printable(name));
  return feature.bytes_list().value(0);
}

std::vector<double> Example::numbers(const std::string& name) const {
  const auto& feature = state_->feature(name);
  require(feature.has_float_list() || feature.has_int64_list(), "[tfrecord] {}: '{}' is no list of numbers", state_->file,
          printable(name));
  if (feature.has_float_list()) return {feature.float_list().value().begin(), feature.float_list().value().end()};
  std::vector<double> result;
  for (const auto value : feature.int64_list().value()) result.push_back(static_cast<double>(value));
  return result;
}

std::string example_record(const std::string& volume, std::string_view bytes, const std::string& targets,
                           const std::vector<float>& numbers) {
  proto::Example message;
  auto& features = *message.mutable_features()->mutable_feature();
  features[volume].mutable_bytes_list()->add_value(bytes.data(), bytes.size());
  auto& list = *features[targets].mutable_float_list();
  for (const auto number : numbers) list.add_value(number);
  return message.SerializeAsString();
}

}  // namespace mpigrad::data
