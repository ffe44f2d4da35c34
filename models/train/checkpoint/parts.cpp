#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>

#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "models/train/checkpoint/file.h"

namespace mpigrad::checkpoint_file {
namespace {

// Names of notes in files of parts, which no note of a program may have.
const std::string part_note = "part of the ranks' checkpoint", place_note = "place of ";

// "1 2 3": whole numbers. Error: anything else.
std::vector<std::int64_t> numbers_in(const std::string& text, const std::filesystem::path& path) {
  std::vector<std::int64_t> numbers;
  const char *at = text.data(), *const end = at + text.size();
  while (at != end) {
    if (*at == ' ') ++at;
    std::int64_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    require(error == std::errc() && number >= 0, "[checkpoint] {}: '{}' is not a list of numbers", path.string(),
            printable(text));
    numbers.push_back(number), at = next;
  }
  return numbers;
}

// An open file of a part.
struct PartFile {
  explicit PartFile(const std::filesystem::path& path) : reader(path), info(read_info(reader)) {
    const auto note = info.notes.find(part_note);
    require(note != info.notes.end(), "[checkpoint] {} is not a part of a checkpoint", path.string());
    const auto numbers = numbers_in(note->second, path);
    require(numbers.size() == 2 && numbers[0] < numbers[1], "[checkpoint] {} is a part of '{}'", path.string(),
            printable(note->second));
    id = {info.step, numbers[0], numbers[1]};
  }
  Tensor read(const Hdf5Dataset& dataset) const {
    return read_tensor(reader, {dataset.name, Tensor({dataset.shape, dataset.type}, DeviceKind::dry)}, true);
  }
  // The box of one of its tensors in the whole tensor, and the shape of the whole tensor.
  std::pair<Box, Shape> place(const Hdf5Dataset& dataset) const {
    const auto note = info.notes.find(place_note + dataset.name);
    const auto numbers = note == info.notes.end() ? std::vector<std::int64_t>() : numbers_in(note->second, reader.path());
    const auto rank = static_cast<std::size_t>(dataset.shape.rank());
    require(note != info.notes.end() && numbers.size() == 2 * rank, "[checkpoint] {} does not say where its {} belongs",
            reader.path().string(), printable(dataset.name));
    const auto at = numbers.begin() + static_cast<std::ptrdiff_t>(rank);
    const Shape begin(std::vector<std::int64_t>(numbers.begin(), at)), whole(std::vector<std::int64_t>(at, numbers.end()));
    auto end = begin;
    for (int d = 0; d < whole.rank(); ++d) {
      end[d] += dataset.shape[d];
      require(end[d] <= whole[d], "[checkpoint] {}: its {} is not a part of {}", reader.path().string(), printable(dataset.name),
              whole);
    }
    return {Box{begin, end}, whole};
  }
  std::vector<Hdf5Dataset> tensors() const {
    auto all = reader.datasets();
    std::erase_if(all, [](const auto& dataset) { return dataset.kind != Hdf5Dataset::Kind::number; });
    return all;
  }

  Hdf5Reader reader;
  CheckpointInfo info;
  PartId id;
};

std::string text_of(const Shape& shape) {
  std::vector<std::string> numbers;
  for (const auto extent : shape) numbers.push_back(fmt::format("{}", extent));
  return joined(numbers, " ");
}

}  // namespace

void write_part(const std::filesystem::path& path, const Contents& contents, Remarks remarks, int rank, int ranks) {
  Contents mine;
  remarks.notes.push_back(fmt::format("{}={} {}", part_note, rank, ranks));
  for (const auto& part : contents.parts) {
    const auto& item = contents.items[part.item];
    remarks.notes.push_back(fmt::format("{}{}={} {}", place_note, item.name, text_of(part.box.begin), text_of(item.shape)));
    auto moved = part;
    moved.item = mine.items.size();
    moved.box = Box{Shape(std::vector<std::int64_t>(static_cast<std::size_t>(item.shape.rank()), 0)), part.box.extents()};
    mine.items.push_back({item.name, part.box.extents(), item.type, item.stored});
    mine.parts.push_back(std::move(moved));
  }
  write_file(path, mine, remarks, Replaces::anything, nullptr);
}

PartId verify_part(const std::filesystem::path& path) {
  const PartFile file(path);
  for (const auto& dataset : file.tensors()) static_cast<void>(file.read(dataset)), static_cast<void>(file.place(dataset));
  return file.id;
}

void join_parts(const std::vector<std::filesystem::path>& paths, const std::filesystem::path& path) {
  std::vector<std::shared_ptr<const PartFile>> files;
  for (const auto& each : paths) files.push_back(std::make_shared<PartFile>(each));
  Contents whole;
  std::map<std::string, std::size_t> items;
  std::vector<std::int64_t> elements;  // number of elements present, of each item
  for (const auto& file : files) {
    const auto rank = static_cast<std::int64_t>(&file - files.data());
    const PartId expected{files.front()->id.step, rank, static_cast<std::int64_t>(files.size())};
    require(file->id == expected, "[checkpoint] {} is rank {}'s part of {} of step {}, not rank {}'s of {} of step {}",
            file->reader.path().string(), file->id.rank, file->id.ranks, file->id.step, rank, files.size(), expected.step);
    for (const auto& dataset : file->tensors()) {
      const auto [box, shape] = file->place(dataset);
      const auto [found, fresh] = items.emplace(dataset.name, whole.items.size());
      if (fresh) whole.items.push_back({dataset.name, shape, dataset.type, dataset.type}), elements.push_back(0);
      const auto& item = whole.items[found->second];
      require(item.shape == shape && item.type == dataset.type, "[checkpoint] {}: its {} is a part of {} {}, rank 0's of {} {}",
              file->reader.path().string(), printable(dataset.name), name_of(dataset.type), shape, name_of(item.type),
              item.shape);
      elements[found->second] += box.elements();
      whole.parts.push_back({found->second, box, {}, nullptr, [file, dataset] { return file->read(dataset); }});
    }
  }
  for (std::size_t i = 0; i < elements.size(); ++i)
    require(elements[i] == whole.items[i].shape.elements(), "[checkpoint] the parts of {} have {} elements of {}",
            whole.items[i].name, elements[i], whole.items[i].shape);
  // Numbers and notes are the same in all parts.
  const auto& first = *files.front();
  auto info = first.info;
  std::erase_if(info.notes, [](const auto& note) { return note.first == part_note || note.first.starts_with(place_note); });
  Remarks remarks({.info = info});
  for (const char* name : number_names) {
    const bool there = std::any_of(remarks.numbers.begin(), remarks.numbers.end(),
                                   [&](const auto& number) { return number.name == std::string_view(name); });
    if (there || !first.reader.has_attribute("/", name)) continue;
    const double number = first.reader.number_attribute("/", name);
    if (name == std::string_view("loss_scale")) remarks.numbers.push_back({name, number});
    else remarks.numbers.push_back({name, static_cast<std::int64_t>(number)});
  }
  write_file(path, whole, remarks, Replaces::anything, nullptr);
}

}  // namespace mpigrad::checkpoint_file
