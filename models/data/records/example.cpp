#include "models/data/records/example.h"

#include <example.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <limits>

#include "framework/base/error.h"
#include "framework/base/joined.h"
#include "framework/base/printable.h"

namespace mpigrad::data {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Calls f(number, bytes) for every length-delimited field of a message; skips others. False: not a message.
template <class F>
bool for_fields(std::string_view message, F f) {
  if (message.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) return false;
  CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(message.data()), static_cast<int>(message.size()));
  while (const auto tag = stream.ReadTag()) {
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&stream, tag)) return false;
      continue;
    }
    std::uint32_t length = 0;
    if (!stream.ReadVarint32(&length)) return false;
    const auto begin = static_cast<std::size_t>(stream.CurrentPosition());
    if (length > message.size() - begin) return false;
    if (!f(WireFormatLite::GetTagFieldNumber(tag), message.substr(begin, length))) return false;
    if (!stream.Skip(static_cast<int>(length))) return false;
  }
  return stream.ConsumedEntireMessage();
}

}  // namespace

bool examples_available() { return true; }

Example::Example(std::string_view record, std::string file) : file_(std::move(file)) {
  // Field 1 of an Example is its Features; field 1 of Features is the entries of a map: 1 the key, 2 the value.
  const bool good = for_fields(record, [&](int example_field, std::string_view features) {
    return example_field != 1 || for_fields(features, [&](int field, std::string_view entry) {
             if (field != 1) return true;
             std::string_view key, value;
             const bool whole = for_fields(entry, [&](int part, std::string_view bytes) {
               if (part == 1) key = bytes;
               if (part == 2) value = bytes;
               return true;
             });
             features_[std::string(key)] = value;
             return whole;
           });
  });
  require(good, "[tfrecord] {}: a record is not a tf.train.Example", file_);
}

std::string_view Example::feature(const std::string& name) const {
  if (const auto found = features_.find(name); found != features_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [key, value] : features_) names.push_back(printable(key, 40));
  if (names.size() > 20) names.resize(20), names.emplace_back("...");
  fail("[tfrecord] {}: a record has no '{}'; it has: {}", file_, printable(name),
       names.empty() ? "nothing" : joined(names, ", "));
}

std::string_view Example::bytes(const std::string& name) const {
  std::string_view result;
  int count = 0;
  const bool good = for_fields(feature(name), [&](int kind, std::string_view list) {
    return kind == proto::Feature::kBytesListFieldNumber && for_fields(list, [&](int field, std::string_view value) {
             result = value;
             return field == 1 && ++count == 1;
           });
  });
  require(good && count == 1, "[tfrecord] {}: '{}' is not one string of bytes", file_, printable(name));
  return result;
}

std::vector<double> Example::numbers(const std::string& name) const {
  proto::Feature message;
  const auto bytes = feature(name);
  const bool read = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  require(read && (message.has_float_list() || message.has_int64_list()), "[tfrecord] {}: '{}' is not a list of numbers", file_,
          printable(name));
  if (message.has_float_list()) return {message.float_list().value().begin(), message.float_list().value().end()};
  std::vector<double> result;
  for (const auto value : message.int64_list().value()) result.push_back(static_cast<double>(value));
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
