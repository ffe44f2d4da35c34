#include "examples/tools/weights/safetensors.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <span>

#include "framework/base/new_file.h"
#include "framework/base/printable.h"
#include "framework/base/text_bounds.h"
#include "framework/tensor/tensor_name.h"

namespace mpigrad::weights {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

// Limits for headers that are read or written. The format itself limits the bytes.
constexpr TextBounds header_bounds{.bytes = 100'000'000, .depth = 8};
constexpr const char* metadata_name = "__metadata__";

struct TypeName {
  const char* theirs;
  DType ours;
};
constexpr TypeName type_names[] = {{"F64", DType::float64},   {"F32", DType::float32}, {"F16", DType::float16},
                                   {"BF16", DType::bfloat16}, {"I64", DType::int64},   {"I32", DType::int32},
                                   {"I16", DType::int16},     {"U16", DType::uint16},  {"U8", DType::uint8},
                                   {"BOOL", DType::boolean}};

struct Closing {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Closing>;

// The elements of one tensor: their place and type.
struct Entry {
  std::string name;
  DType type;
  Shape shape;
  std::uint64_t begin, end;
};

Entry entry_of(const std::string& where, const std::string& name, const nlohmann::json& value, std::uint64_t bytes) {
  const auto damaged = [&](const char* what) { fail("[safetensors] {}: {} of '{}'", where, what, printable(name)); };
  if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() || !value.contains("shape") ||
      !value["shape"].is_array() || !value.contains("data_offsets") || !value["data_offsets"].is_array() ||
      value["data_offsets"].size() != 2)
    damaged("no dtype, shape and data_offsets");
  const auto text = value["dtype"].get<std::string>();
  const auto type = std::find_if(std::begin(type_names), std::end(type_names), [&](const auto& t) { return text == t.theirs; });
  require(type != std::end(type_names), "[safetensors] {}: '{}' is of type {}, which is not supported", where, printable(name),
          printable(text));
  std::vector<std::int64_t> extents;
  std::uint64_t elements = 1;
  double without_zeros = 1;
  for (const auto& extent : value["shape"]) {
    if (!extent.is_number_unsigned()) damaged("an extent that is not a number");
    const auto n = extent.get<std::uint64_t>();
    if (n != 0 && elements > bytes / n) damaged("extents beyond the file");
    elements *= n;
    without_zeros *= static_cast<double>(std::max<std::uint64_t>(n, 1));
    extents.push_back(static_cast<std::int64_t>(n));
  }
  if (without_zeros > 0x1p53)
    damaged("extents that no tensor has");  // only possible if an extent is 0: otherwise there would be
                                            // more elements than bytes
  if (extents.size() > Shape::max_rank) damaged("too many dimensions");
  const auto& offsets = value["data_offsets"];
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) damaged("offsets that are not numbers");
  const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
  if (end < begin || end > bytes || end - begin != elements * static_cast<std::uint64_t>(size_of(type->ours)))
    damaged("offsets that do not match the shape");
  return {name, type->ours, Shape(extents), begin, end};
}

// Names the first repeated key: the parser itself silently keeps the last one.
nlohmann::json parsed(const std::string& header, const std::string& where) {
  std::vector<std::set<std::string>> open;
  std::string repeated;
  bool repeats = false;
  const auto document = nlohmann::json::parse(
      header,
      [&](int, nlohmann::json::parse_event_t event, nlohmann::json& value) {
        if (event == nlohmann::json::parse_event_t::object_start) open.emplace_back();
        if (event == nlohmann::json::parse_event_t::object_end && !open.empty()) open.pop_back();
        if (event == nlohmann::json::parse_event_t::key && !repeats && !open.back().insert(value.get<std::string>()).second)
          repeats = true, repeated = value.get<std::string>();
        return true;
      },
      false);
  require(document.is_object(), "[safetensors] {}: its header is not a JSON object", where);
  require(!repeats, "[safetensors] {}: its header has '{}' twice in one object", where, printable(repeated, 80));
  return document;
}

std::vector<std::string> names_of(const TensorFile& file) {
  std::vector<std::string> names;
  for (const auto& tensor : file.tensors) names.push_back(tensor.name);
  return names;
}

// Error: model-I-of-N with impossible numbers.
void require_possible_part(const std::filesystem::path& path) {
  static const std::regex part(R"((?:.*[^-])?-(-?\d{1,9})-of-(-?\d{1,9}(-\d{1,9})?)\.safetensors)");
  std::smatch numbers;
  const auto name = path.filename().string();
  if (!std::regex_match(name, numbers, part)) return;
  const auto number = std::stoll(numbers[1]), count = std::stoll(numbers[2]);
  require(number >= 0 && count >= 1 && number <= count && !numbers[3].matched, "[safetensors] {}: there is no part {} of {}",
          printable(path.string()), numbers[1].str(), numbers[2].str());
}

}  // namespace

TensorFile read_safetensors(const std::filesystem::path& path) {
  const auto where = path.string();
  require_possible_part(path);
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  require(!error, "[safetensors] {} cannot be read: {}", where, error.message());
  const File file(std::fopen(path.c_str(), "rb"));
  const int reason = errno;
  require(file != nullptr, "[safetensors] {} cannot be read: {}", where, std::strerror(reason));
  std::uint64_t length = 0;
  const bool begun = std::fread(&length, sizeof length, 1, file.get()) == 1;
  require(begun && length <= header_bounds.bytes && length + 8 <= size,
          "[safetensors] {} is not a safetensors file, or truncated", where);
  std::string header(length, '\0');
  require(std::fread(header.data(), 1, length, file.get()) == length, "[safetensors] {} is truncated", where);
  const auto excess = excess_of_json(header, header_bounds);
  require(excess.empty(), "[safetensors] {}: its header {}", where, excess);
  const auto document = parsed(header, where);

  TensorFile result;
  std::vector<Entry> entries;
  const auto bytes = size - 8 - length;
  for (const auto& [name, value] : document.items()) {
    if (name != metadata_name) {
      entries.push_back(entry_of(where, name, value, bytes));
      continue;
    }
    require(value.is_object(), "[safetensors] {}: {} is not an object", where, name);
    for (const auto& [key, text] : value.items()) {
      require(text.is_string(), "[safetensors] {}: {} '{}' is not a text", where, name, printable(key));
      result.metadata[key] = text.get<std::string>();
    }
  }
  std::vector<std::string> names;
  for (const auto& entry : entries) names.push_back(entry.name);
  require_tensor_names(names, "[safetensors] " + where);
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t at = 0;
  for (const auto& entry : entries) {
    require(entry.begin == at, "[safetensors] {}: the elements of '{}' do not begin where the previous ones end", where,
            printable(entry.name));
    at = entry.end;
    Tensor value({entry.shape, entry.type}, DeviceKind::cpu);
    const auto count = static_cast<std::size_t>(value.bytes());
    require(std::fread(value.raw(), 1, count, file.get()) == count, "[safetensors] {} is truncated in '{}'", where,
            printable(entry.name));
    result.tensors.push_back({entry.name, constant(value)});
  }
  require(at == bytes, "[safetensors] {} has {} bytes after its last tensor", where, bytes - at);
  std::sort(result.tensors.begin(), result.tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return result;
}

void write_safetensors(const std::filesystem::path& path, const TensorFile& contents, bool overwrite) {
  const auto where = path.string();
  require(overwrite || !is_name_taken(path), "[safetensors] {} exists; --overwrite replaces it", where);
  const auto names = names_of(contents);
  require_tensor_names(names, "[safetensors] " + where);
  require(std::find(names.begin(), names.end(), metadata_name) == names.end(), "[safetensors] {}: no tensor may be called {}",
          where, metadata_name);
  nlohmann::ordered_json header;
  if (!contents.metadata.empty()) header[metadata_name] = contents.metadata;
  std::int64_t at = 0;
  for (const auto& [name, value] : contents.tensors) {
    const auto type = std::find_if(std::begin(type_names), std::end(type_names),
                                   [type = value.dtype()](const auto& t) { return type == t.ours; });
    require(type != std::end(type_names), "[safetensors] {}: '{}' is {}, which the format does not have", where, name,
            name_of(value.dtype()));
    header[name] = {{"dtype", type->theirs},
                    {"shape", std::vector<std::int64_t>(value.shape().begin(), value.shape().end())},
                    {"data_offsets", {at, at + value.bytes()}}};
    at += value.bytes();
  }
  auto text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // elements begin at a multiple of 8
  const std::uint64_t length = text.size();
  const auto excess = excess_of_json(text, header_bounds);
  require(excess.empty(), "[safetensors] {}: the header of these {} tensors {}, and readers would refuse it", where, names.size(),
          excess);
  const auto written = parsed(text, where).size() - (contents.metadata.empty() ? 0 : 1);
  require(written == names.size(), "[safetensors] {}: {} names of {} tensors", where, written, names.size());

  NewFile file(path, "safetensors");
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(text);
  for (const auto& [name, value] : contents.tensors) file.write({value.raw(), static_cast<std::size_t>(value.bytes())});
  file.commit();
}

}  // namespace mpigrad::weights
