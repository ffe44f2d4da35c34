#pragma once
// Labels of cells whose numbers are not those of classes: masks of 0 and 255, and labels of cells that count in nothing.

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/data/source.h"

namespace mpigrad::data {

// The label of a cell that counts in no loss, score or choice of windows.
inline constexpr std::int32_t ignored_label = -1;

struct LabelRules {
  std::unordered_map<std::int64_t, std::int64_t> numbers{};  // class of a stored label; other labels are their own class
  std::vector<std::int64_t> ignored{};                       // stored labels that become ignored_label

  bool any() const { return !numbers.empty() || !ignored.empty(); }
  // Replaces stored labels by classes. Error, with `name`: a label below 0 that no rule names.
  void apply(std::vector<std::int32_t>& labels, const std::string& name) const;
};
// Rules from texts "STORED=CLASS" and numbers. Errors: another text, a class that is not from 0 to 2^31 - 1, a label in two
// rules.
LabelRules label_rules(const std::vector<std::string>& numbers, const std::vector<std::int64_t>& ignored);

// The same samples with int32 labels by these rules. Error: labels that are not an integer for each cell.
SourcePtr relabelled(SourcePtr source, const LabelRules& rules);

}  // namespace mpigrad::data
