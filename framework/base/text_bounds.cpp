#include "framework/base/text_bounds.h"

#include <fmt/format.h>

#include <algorithm>

namespace mpigrad {
namespace {

// The position after the string that begins at `at`. TOML has strings without escapes ('), and strings between three quotes,
// which may themselves end with one or two quotes.
std::size_t end_of_string(std::string_view text, std::size_t at, bool toml) {
  const char quote = text[at];
  const std::string_view three = quote == '"' ? R"(""")" : "'''";
  const bool long_string = toml && text.substr(at).starts_with(three);
  const auto end = long_string ? three : three.substr(0, 1);
  at += end.size();
  while (at < text.size()) {
    if (text[at] == '\\' && quote == '"') at += 2;
    else if (text.substr(at).starts_with(end)) {
      at += end.size();
      for (int own = 0; long_string && own < 2 && at < text.size() && text[at] == quote; ++own) ++at;
      return at;
    } else if (toml && !long_string && text[at] == '\n') return at;  // an error of the parser
    else ++at;
  }
  return text.size();
}

std::string excess(std::string_view text, const TextBounds& bounds, bool toml) {
  if (text.size() > bounds.bytes) return fmt::format("has more than {} bytes", bounds.bytes);
  std::size_t values = 0, depth = 0, parts = 1;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || (toml && c == '\'')) {
      at = end_of_string(text, at, toml);
      continue;
    }
    if (toml && c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    const bool opens = c == '[' || c == '{', key_ends = c == '\n' || c == '=' || c == ',' || opens;
    if (opens) ++depth;
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if (opens || c == ',' || (toml && c == '=')) ++values;
    if (toml && c == '.') ++parts, ++values;
    if (key_ends) parts = 1;
    if (depth > bounds.depth) return fmt::format("has brackets in brackets, more than {} deep", bounds.depth);
    if (parts > bounds.depth) return fmt::format("has a key of more than {} parts", bounds.depth);
    if (values > bounds.values) return fmt::format("has more than {} values", bounds.values);
    ++at;
  }
  return {};
}

}  // namespace

std::string excess_of_json(std::string_view text, const TextBounds& bounds) { return excess(text, bounds, false); }
std::string excess_of_toml(std::string_view text, const TextBounds& bounds) { return excess(text, bounds, true); }

std::string read_bounded(std::istream& stream, const TextBounds& bounds) {
  std::string text;
  while (stream.good() && text.size() <= bounds.bytes) {
    const auto had = text.size(), piece = std::min<std::size_t>(std::size_t{1} << 20, bounds.bytes + 1 - had);
    text.resize(had + piece);
    stream.read(text.data() + had, static_cast<std::streamsize>(piece));
    text.resize(had + static_cast<std::size_t>(stream.gcount()));
  }
  return text;
}

}  // namespace mpigrad
