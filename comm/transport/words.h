#pragma once
// Lists of words in environment variables. Used inside comm only.

#include <string_view>
#include <vector>

namespace mpigrad::detail {

// The words between the commas; none for an empty text.
inline std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (auto comma = text.find(','); comma != std::string_view::npos; comma = text.find(','))
    words.push_back(text.substr(0, comma)), text.remove_prefix(comma + 1);
  if (!text.empty() || !words.empty()) words.push_back(text);
  return words;
}

}  // namespace mpigrad::detail
