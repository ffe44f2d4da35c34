#include "models/nn/layer_names.h"

#include <cctype>
#include <charconv>
#include <cstdint>
#include <utility>

namespace mpigrad::nn {
namespace {

// The number at the end of text[0, end), and where it begins; -1 if there is none or it is too large.
std::pair<std::int64_t, std::size_t> number_before(std::string_view text, std::size_t end) {
  auto begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(text[begin - 1])) != 0) --begin;
  std::int64_t number = -1;
  if (end - begin <= 9) std::from_chars(text.data() + begin, text.data() + end, number);
  return {number, begin};
}

}  // namespace

bool names_layer(std::string_view layers, std::string_view path) {
  const auto ends = [&](std::size_t at) { return at == path.size() || path[at] == '.'; };
  if (path.starts_with(layers) && ends(layers.size())) return true;
  const auto dash = layers.rfind('-');
  if (dash == std::string_view::npos) return false;
  const auto [last, behind] = number_before(layers, layers.size());
  const auto [first, begin] = number_before(layers, dash);
  const auto prefix = layers.substr(0, begin);
  if (behind != dash + 1 || first < 0 || last < 0 || !path.starts_with(prefix)) return false;
  auto end = begin;
  while (end < path.size() && std::isdigit(static_cast<unsigned char>(path[end])) != 0) ++end;
  const auto number = number_before(path, end).first;
  return ends(end) && end > begin && number >= first && number <= last;
}

}  // namespace mpigrad::nn
