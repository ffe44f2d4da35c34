// What the pass over the data before the first step finds in labels and values.

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "framework/base/joined.h"
#include "framework/tensor/content_hash.h"
#include "models/data/volumes/label_rules.h"
#include "models/trainer/segmentation/parts.h"

namespace mpigrad::trainer::segmenting {
namespace {

std::string some(const std::vector<std::int64_t>& all) {
  constexpr std::size_t shown = 12;
  const std::vector<std::int64_t> first(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(shown, all.size())));
  return joined(first, ", ") + (all.size() > shown ? fmt::format(", ... ({} in all)", all.size()) : "");
}

// The rules of labels.map that number these labels from 0 on, one after the other.
std::string numbered_anew(const std::vector<std::int64_t>& labels) {
  constexpr std::size_t most_shown = 12;
  std::vector<std::string> rules;
  for (std::size_t i = 0; i < labels.size() && rules.size() < most_shown; ++i)
    if (labels[i] != static_cast<std::int64_t>(i)) rules.push_back(fmt::format("{} = {}", labels[i], i));
  return joined(rules, ", ") + (rules.size() == most_shown ? ", ..." : "");
}

}  // namespace

std::string label_gaps(const std::vector<std::int64_t>& labels, const std::string& data) {
  std::vector<std::int64_t> missing;
  for (std::size_t i = 0; i < labels.size(); ++i)
    for (auto label = i == 0 ? 0 : labels[i - 1] + 1; label < labels[i]; ++label) missing.push_back(label);
  if (missing.empty()) return {};
  return fmt::format(
      "the labels of {} are {}: classes count from 0, one after the other, and {} missing: labels.map = {{ {} }} numbers them "
      "anew, "
      "labels.ignore leaves cells out, network.classes says how many classes there are",
      data, some(labels), some(missing) + (missing.size() == 1 ? " is" : " are"), numbered_anew(labels));
}

data::ContentsOptions LabelCount::reading(const data::Source& source, DType dtype) {
  data::ContentsOptions options{.dtype = dtype};
  options.cells = [this, &source](std::int64_t sample, const Box& box, const std::byte* targets) {
    const auto most_classes = classes_ > 0 ? classes_ : static_cast<std::int64_t>(most);
    visit_stored(source.target_type().type, [&](auto zero) {
      const auto* labels = reinterpret_cast<const decltype(zero)*>(targets);
      for (std::int64_t i = 0; i < box.elements(); ++i) {
        const auto label = static_cast<std::int64_t>(labels[i]);
        if (label >= 0 && label < most_classes) {
          found_[static_cast<std::size_t>(label)] = 1;
        } else if (!ignores_ || label != data::ignored_label) {
          require(label >= 0, "[data] {}: a label is {}; classes count from 0", source.name_of_sample(sample), label);
          require(classes_ == 0, "[data] {}: a label is {}, there are {} classes", source.name_of_sample(sample), label,
                  classes_);
          fail("[data] {}: a label is {}; classes count from 0, one after the other, and labels.map gives labels other numbers",
               source.name_of_sample(sample), label);
        }
      }
    });
  };
  return options;
}

std::int64_t LabelCount::classes(const Communicator& world, const std::string& data) {
  auto found = found_;
  world.transport().allreduce(found_.data(), found.data(), static_cast<std::int64_t>(found.size()), DType::int64, CombineOp::max);
  std::vector<std::int64_t> labels, missing;
  for (std::size_t label = 0; label < most; ++label)
    if (found[label] != 0) labels.push_back(static_cast<std::int64_t>(label));
  if (classes_ == 0)
    if (const auto gaps = label_gaps(labels, data); !gaps.empty()) throw UsageError("[data] " + gaps);
  const auto count = classes_ > 0 ? classes_ : labels.empty() ? 0 : labels.back() + 1;
  for (std::int64_t label = 0; label < count; ++label)
    if (found[static_cast<std::size_t>(label)] == 0) missing.push_back(label);
  if (!missing.empty() && world.rank() == 0)
    fmt::print(stderr, "warning: no cell of {} is of the classes {}\n", data, some(missing));
  return std::max<std::int64_t>(2, count);
}

std::uint64_t hash_of_values(const Shape& extents, std::int64_t channels, DType type, const void* values, std::int64_t first,
                             std::int64_t count) {
  const auto hash = content_hash(type, values, count, first);
  return first > 0 ? hash : hash + content_hash(fmt::format("{} {}", extents, channels));
}

ValueSummary::ValueSummary(const data::Source& source)
    : source_(source),
      least_(static_cast<std::size_t>(source.size() * source.channels()), std::numeric_limits<double>::infinity()),
      most_(least_.size(), -std::numeric_limits<double>::infinity()), hashes_(static_cast<std::size_t>(2 * source.size())) {}

void ValueSummary::add(std::int64_t sample, const Box& box, const std::byte* values) {
  const auto channels = source_.channels(), count = box.elements() * channels;
  const auto extents = source_.extents_of(sample);
  const auto first = static_cast<std::size_t>(sample * channels);
  visit_stored(source_.type(), [&](auto zero) {
    const auto* x = reinterpret_cast<const decltype(zero)*>(values);
    for (std::int64_t c = 0; c < channels; ++c) {
      auto low = x[c], high = x[c];
      for (auto i = c; i < count; i += channels) low = std::min(low, x[i]), high = std::max(high, x[i]);
      auto &least = least_[first + static_cast<std::size_t>(c)], &most = most_[first + static_cast<std::size_t>(c)];
      least = std::min(least, static_cast<double>(low)), most = std::max(most, static_cast<double>(high));
    }
  });
  const auto hash =
      hash_of_values(extents, channels, source_.type(), values, box.begin[0] * extents[1] * extents[2] * channels, count);
  // Ranks may have parts of a sample, whose hashes add up. Halves of 32 bits do not overflow in a sum over ranks.
  auto* halves = hashes_.data() + 2 * sample;
  const auto all = (static_cast<std::uint64_t>(halves[1]) << 32) + static_cast<std::uint64_t>(halves[0]) + hash;
  halves[0] = static_cast<std::int64_t>(all & 0xffffffff), halves[1] = static_cast<std::int64_t>(all >> 32);
}

std::vector<std::string> ValueSummary::remarks(const Communicator& world, const std::vector<std::int64_t>& kept) const {
  auto least = least_, most = most_;
  auto halves = hashes_;
  auto& transport = world.transport();
  const auto numbers = static_cast<std::int64_t>(least.size());
  transport.allreduce(least_.data(), least.data(), numbers, DType::float64, CombineOp::min);
  transport.allreduce(most_.data(), most.data(), numbers, DType::float64, CombineOp::max);
  transport.allreduce(hashes_.data(), halves.data(), static_cast<std::int64_t>(halves.size()), DType::int64, CombineOp::sum);
  const auto channels = static_cast<std::size_t>(source_.channels());
  std::int64_t constant = 0, same = 0, across = 0;
  std::string first, pair, of_both;
  std::unordered_map<std::uint64_t, std::int64_t> seen;
  for (std::int64_t sample = 0; sample < source_.size(); ++sample) {
    const auto name = source_.name_of_sample(sample);
    for (std::size_t c = 0; c < channels; ++c)
      if (const auto i = static_cast<std::size_t>(sample) * channels + c; least[i] == most[i]) {
        if (constant++ == 0) first = fmt::format("{}: {}", name, least[i]);
        break;
      }
    const auto* of = halves.data() + 2 * sample;
    const auto hash = (static_cast<std::uint64_t>(of[1]) << 32) + static_cast<std::uint64_t>(of[0]);
    const auto [other, fresh] = seen.try_emplace(hash, sample);
    if (fresh) continue;
    const auto text = fmt::format("{} and {}", source_.name_of_sample(other->second), name);
    if (same++ == 0) pair = text;
    const auto is_kept = [&](std::int64_t each) { return std::binary_search(kept.begin(), kept.end(), each); };
    if (is_kept(sample) != is_kept(other->second) && across++ == 0) of_both = text;
  }
  std::vector<std::string> lines;
  const auto say = [&](std::int64_t count, const char* what, const std::string& example) {
    if (count > 0) lines.push_back(fmt::format("{} volumes {} ({})", count, what, example));
  };
  say(constant, "have one value in every cell of a channel", first);
  say(same, "have the values of another one", pair);
  say(across, "are in the training and in the validation, whose scores are then too good", of_both);
  return lines;
}

}  // namespace mpigrad::trainer::segmenting
