#include "models/data/volumes/label_rules.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

#include "framework/base/printable.h"
#include "framework/tensor/dtype.h"
#include "models/data/sources/bytes.h"

namespace mpigrad::data {
namespace {

constexpr std::int64_t most_class = std::numeric_limits<std::int32_t>::max();

class Relabelled : public Source {
 public:
  Relabelled(SourcePtr source, LabelRules rules)
      : source_(std::move(source)), rules_(std::move(rules)), type_(source_->sample_type()) {
    const auto& targets = type_.targets;
    require(targets.per_cell && targets.shape.elements() == 1 && !is_floating(targets.type),
            "[data] {}: rules for labels need a whole number for each cell", source_->name_of_sample(0));
    type_.targets.type = DType::int32;
  }
  std::int64_t size() const override { return source_->size(); }
  const SampleType& sample_type() const override { return type_; }
  void read(std::int64_t sample, const Box& box, std::byte* out) const override { source_->read(sample, box, out); }
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override {
    const auto stored = source_->target_type().type;
    std::vector<std::byte> bytes(static_cast<std::size_t>(box.elements() * size_of(stored)));
    source_->read_targets(sample, box, bytes.data());
    std::vector<std::int32_t> labels(static_cast<std::size_t>(box.elements()));
    visit_stored(stored, [&](auto zero) {
      const auto* from = reinterpret_cast<const decltype(zero)*>(bytes.data());
      for (std::size_t i = 0; i < labels.size(); ++i) {
        const auto label = static_cast<double>(from[i]);
        require(label >= -static_cast<double>(most_class) && label <= static_cast<double>(most_class), "[data] {}: a label is {}",
                name_of_sample(sample), label);
        labels[i] = static_cast<std::int32_t>(from[i]);
      }
    });
    rules_.apply(labels, name_of_sample(sample));
    std::memcpy(out, labels.data(), labels.size() * sizeof(std::int32_t));
  }
  Shape extents_of(std::int64_t sample) const override { return source_->extents_of(sample); }
  std::string name_of_sample(std::int64_t sample) const override { return source_->name_of_sample(sample); }
  void check(std::int64_t part, std::int64_t parts) const override { source_->check(part, parts); }
  bool in_memory() const override { return source_->in_memory(); }
  bool targets_in_memory() const override { return source_->targets_in_memory(); }
  JobQueue& queue() const override { return source_->queue(); }

 private:
  SourcePtr source_;
  LabelRules rules_;
  SampleType type_;
};

std::int64_t number_of(std::string_view text, const std::string& rule) {
  std::int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  require(
      !text.empty() && error == std::errc{} && stop == text.data() + text.size() && number >= -most_class && number <= most_class,
      "[data] '{}' is no rule for labels: STORED=CLASS, such as 255=1", printable(rule));
  return number;
}

}  // namespace

void LabelRules::apply(std::vector<std::int32_t>& labels, const std::string& name) const {
  constexpr std::int32_t unset = std::numeric_limits<std::int32_t>::min();
  if (!any()) {
    const auto least = std::min_element(labels.begin(), labels.end());
    if (least == labels.end() || *least >= 0) return;
  }
  std::vector<std::int32_t> table(1 << 12, unset);  // most labels are small: no search in the rules for each cell
  for (auto& label : labels) {
    const bool small = label >= 0 && static_cast<std::size_t>(label) < table.size();
    if (small && table[static_cast<std::size_t>(label)] != unset) {
      label = table[static_cast<std::size_t>(label)];
      continue;
    }
    const auto stored = label;
    if (std::find(ignored.begin(), ignored.end(), stored) != ignored.end()) label = ignored_label;
    else if (const auto found = numbers.find(stored); found != numbers.end()) label = static_cast<std::int32_t>(found->second);
    else require(stored >= 0, "[data] {}: a label is {}; labels that no rule names must not be negative", name, stored);
    if (small) table[static_cast<std::size_t>(stored)] = label;
  }
}

LabelRules label_rules(const std::vector<std::string>& numbers, const std::vector<std::int64_t>& ignored) {
  LabelRules rules{.numbers = {}, .ignored = ignored};
  for (const auto& text : numbers) {
    const auto equals = std::min(text.find('='), text.size());
    const auto stored = number_of(std::string_view(text).substr(0, equals), text);
    const auto label = number_of(std::string_view(text).substr(std::min(equals + 1, text.size())), text);
    require(label >= 0, "[data] '{}': classes count from 0", text);
    require(rules.numbers.emplace(stored, label).second && std::find(ignored.begin(), ignored.end(), stored) == ignored.end(),
            "[data] two rules name the label {}", stored);
  }
  return rules;
}

SourcePtr relabelled(SourcePtr source, const LabelRules& rules) {
  require(source != nullptr, "[data] no source whose labels have rules");
  if (!rules.any()) return source;
  return std::make_shared<Relabelled>(std::move(source), rules);
}

}  // namespace mpigrad::data
