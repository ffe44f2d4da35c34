#include "models/data/volumes/npy_pairs.h"

#include <algorithm>
#include <fstream>

#include "framework/base/host_memory.h"
#include "framework/base/printable.h"
#include "models/data/sources/formats.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

// An array [C, D, H, W] in a file.
struct ArrayFile {
  fs::path path;
  std::string name;  // for messages
  Shape extents{};
  std::int64_t channels = 1;
  StoredType type{};
  std::size_t start = 0;  // of the elements
};

ArrayFile open_array(const fs::path& path) {
  ArrayFile result{.path = path, .name = printable(path.string())};
  std::error_code error;
  require(fs::is_regular_file(path, error), "[npy] {}: no such file, or not a regular file", result.name);
  const auto stream = open_stream(path);
  const auto header = parse_npy_header(*stream, result.name);
  const auto& s = header.shape;
  require((s.rank() == 3 || s.rank() == 4) && s.elements() > 0, "[npy] {}: volumes are [D, H, W] or [C, D, H, W], this is {}",
          result.name, s);
  const int d = s.rank() - 3;
  result.extents = {s[d], s[d + 1], s[d + 2]}, result.channels = d == 1 ? s[0] : 1;
  result.type = header.type, result.start = header.bytes;
  const auto expected = static_cast<std::uintmax_t>(s.elements()) * static_cast<std::uintmax_t>(header.type.size) + header.bytes;
  const auto size = fs::file_size(path, error);
  require(!error && size >= expected, "[npy] {}: truncated: {} bytes, {} make {}", result.name, size, expected, s);
  require(size == expected, "[npy] {}: longer than it says: {} bytes, {} make {}", result.name, size, expected, s);
  return result;
}

// Reads the box with all channels, [d, h, w, C], converted to file.type.type.
void read_box(const ArrayFile& file, const Box& box, std::byte* out) {
  for (int a = 0; a < 3; ++a)
    require(box.begin[a] >= 0 && box.begin[a] <= box.end[a] && box.end[a] <= file.extents[a],
            "[data] the box {} is not inside {}", to_string(box), file.extents);
  const auto size = box.extents();
  if (size.elements() == 0) return;
  const auto element = static_cast<std::int64_t>(file.type.size);
  const auto to_element = size_of(file.type.type);
  std::ifstream stream(file.path, std::ios::binary);
  require(stream.good(), "[npy] {}: cannot be opened", file.name);
  // For each plane, the rows of the box and the bytes between them in one read; for whole planes a single read.
  const auto& e = file.extents;
  const bool planes = size[1] == e[1] && size[2] == e[2];
  const Box part{{0, 0, box.begin[2]}, {planes ? size[0] : 1, size[1], box.end[2]}};
  const Box rows{{0, 0, 0}, {planes ? size[0] : 1, size[1], e[2]}};
  const auto first = box.begin[2] * element, length = ((rows.elements() - e[2]) + size[2]) * element;
  const auto cells = part.elements();
  const bool direct = file.channels == 1 && file.type.type != DType::boolean && !file.type.big_endian && to_element == element &&
                      !(file.type.kind == 'u' && element == 8);  // uint64, which may not fit
  std::vector<std::byte> raw(planes && direct ? 0 : static_cast<std::size_t>(rows.elements() * element));
  std::vector<std::byte> packed(static_cast<std::size_t>(planes || direct ? 0 : cells * element));
  for (std::int64_t c = 0; c < file.channels; ++c)
    for (auto d = box.begin[0]; d < box.end[0]; d += part.end[0]) {
      const auto at = ((c * e[0] + d) * e[1] + box.begin[1]) * e[2] * element + first;
      stream.seekg(static_cast<std::streamoff>(file.start) + at);
      auto* to = out + (d - box.begin[0]) * size[1] * size[2] * file.channels * to_element;
      auto* into = planes && direct ? to : raw.data() + first;
      stream.read(reinterpret_cast<char*>(into), length);
      require(stream.gcount() == length, "[npy] {}: truncated since it was first read", file.name);
      if (planes && direct) continue;
      auto* from = raw.data();
      if (!planes) {
        auto* cut = direct ? to : packed.data();
        copy_cells(raw.data(), rows, part, part, element, cut);
        from = cut;
      }
      if (direct) continue;
      const auto values = converted(from, cells, file.type, file.name);
      for (std::int64_t i = 0; i < cells; ++i)
        std::copy_n(values.data() + i * to_element, to_element, to + (i * file.channels + c) * to_element);
    }
}

}  // namespace

struct NpyPairs::State {
  std::vector<ArrayFile> volumes, labels;
  SampleType type;
};

NpyPairs::NpyPairs(const fs::path& folder, const NpyPairsOptions& options) : state_(std::make_shared<State>()) {
  auto& s = *state_;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  require(!error, "[data] {}: the folder cannot be read: {}", folder.string(), error.message());
  std::vector<std::string> stems;
  for (const auto& entry : entries)
    if (const auto name = entry.path().filename().string(); name.ends_with(options.volume) && name.front() != '.')
      stems.push_back(name.substr(0, name.size() - options.volume.size()));
  require(!stems.empty(), "[data] {}: no volumes (*{}) in this folder", folder.string(), options.volume);
  std::sort(stems.begin(), stems.end());
  for (const auto& stem : stems) {
    s.volumes.push_back(open_array(folder / (stem + options.volume)));
    if (!options.label.empty()) s.labels.push_back(open_array(folder / (stem + options.label)));
  }
  const auto& first = s.volumes.front();
  s.type.channels = first.channels, s.type.type = first.type.type;
  s.type.transform = s.type.type == DType::uint8 ? Transform::unit : Transform::none;
  s.type.extents = {0, 0, 0};
  for (const auto& each : s.volumes) {
    require(each.channels == first.channels && each.type.type == first.type.type,
            "[data] {} has {} channels of {}, {} has {} of {}", each.name, each.channels, name_of(each.type.type), first.name,
            first.channels, name_of(first.type.type));
    s.type.same_extents = s.type.same_extents && each.extents == first.extents;
    for (int a = 0; a < 3; ++a) s.type.extents[a] = std::max(s.type.extents[a], each.extents[a]);
  }
  if (s.labels.empty()) return;
  s.type.targets = {.type = s.labels.front().type.type, .shape = {}, .per_cell = true};
  require(!is_floating(s.type.targets.type), "[data] {}: labels must be integers, not {}", s.labels.front().name,
          name_of(s.type.targets.type));
  for (std::size_t i = 0; i < s.labels.size(); ++i) {
    const auto &each = s.labels[i], &volume = s.volumes[i];
    require(each.extents == volume.extents && each.channels == 1,
            "[data] {} is {} of {} channels, {} is {}: labels need one number for each cell", each.name, each.extents,
            each.channels, volume.name, volume.extents);
    require(each.type.type == s.type.targets.type, "[data] {} is {}, {} is {}", each.name, name_of(each.type.type),
            s.labels.front().name, name_of(s.type.targets.type));
  }
}

std::int64_t NpyPairs::size() const { return static_cast<std::int64_t>(state_->volumes.size()); }
const SampleType& NpyPairs::sample_type() const { return state_->type; }

Shape NpyPairs::extents_of(std::int64_t sample) const {
  require_sample(*this, sample);
  return state_->volumes[static_cast<std::size_t>(sample)].extents;
}

std::string NpyPairs::name_of_sample(std::int64_t sample) const {
  require_sample(*this, sample);
  return state_->volumes[static_cast<std::size_t>(sample)].name;
}

void NpyPairs::read(std::int64_t sample, const Box& box, std::byte* out) const {
  require_sample(*this, sample);
  read_box(state_->volumes[static_cast<std::size_t>(sample)], box, out);
}

void NpyPairs::read_targets(std::int64_t sample, const Box& box, std::byte* out) const {
  require_sample(*this, sample);
  if (!state_->labels.empty()) read_box(state_->labels[static_cast<std::size_t>(sample)], box, out);
}

bool has_npy_pairs(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().filename().string().ends_with(NpyPairsOptions{}.volume)) return true;
  return false;
}

}  // namespace mpigrad::data
