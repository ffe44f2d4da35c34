#include "examples/tools/elastic/plan.h"

#include <algorithm>

#include "framework/base/error.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::elastic {

GridExtents next_grid(const GridExtents& wanted, int ranks) {
  const int group = ranks_of(wanted) / wanted.sample;
  auto grid = wanted;
  if (group <= ranks) {
    grid.sample = std::min(wanted.sample, ranks / group);
    return grid;
  }
  GridExtents best;
  int most = 0;
  for (int d = wanted.depth; d >= 1; --d)
    for (int h = wanted.height; h >= 1; --h)
      for (int w = wanted.width; w >= 1; --w)
        for (int c = wanted.channel; c >= 1; --c)
          for (int f = wanted.filter; f >= 1; --f) {
            const GridExtents grid_of_all{.depth = d, .height = h, .width = w, .channel = c, .filter = f};
            const int size = ranks_of(grid_of_all);
            if (size > ranks || size <= most) continue;
            most = size, best = grid_of_all;
          }
  return best;
}

std::vector<std::string> fill(const std::string& text, const std::map<std::string, std::string>& values) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != '\0' ? c == quote : c == '\'' || c == '"') {
      quote = quote != '\0' ? '\0' : c, inside = true;
    } else if (quote == '\0' && (c == ' ' || c == '\t' || c == '\n')) {
      if (inside) words.push_back(std::move(word)), word.clear(), inside = false;
    } else if (c == '{') {
      const auto end = text.find('}', i);
      if (end == std::string::npos) throw tool::UsageError(fmt::format("'{}' ends within braces", text));
      const auto name = text.substr(i + 1, end - i - 1);
      const auto value = values.find(name);
      if (value == values.end()) throw tool::UsageError(fmt::format("'{}' has no {{{}}}", text, name));
      word += value->second, inside = true, i = end;
    } else {
      word += c, inside = true;
    }
  }
  if (quote != '\0') throw tool::UsageError(fmt::format("'{}' ends within quotes", text));
  if (inside) words.push_back(std::move(word));
  return words;
}

Hosts::Hosts(std::vector<std::string> names, int ranks, int forgiven)
    : names_(std::move(names)), ranks_(ranks), forgiven_(forgiven) {}

bool Hosts::drop(const std::string& name) {
  names_.erase(std::remove(names_.begin(), names_.end(), name), names_.end());
  return !names_.empty();
}

std::string Hosts::accuse(const std::string& name) {
  if (++deaths_[name] <= forgiven_) return {};
  deaths_[name] = 0;
  if (names_.size() > 1) {
    drop(name);
    return fmt::format("ranks died on {} more than {} times: continuing without it", name, forgiven_);
  }
  if (ranks_ == 1) return {};
  --ranks_;
  return fmt::format("ranks died on {} more than {} times: continuing with {} ranks on it", name, forgiven_, ranks_);
}

}  // namespace mpigrad::elastic
