#include "comm/transport/environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/transport/watch/watch.h"
#include "comm/transport/words.h"
#include "framework/base/fnv.h"
#include "framework/base/joined.h"

namespace mpigrad {
namespace {

// The texts of all ranks, in rank order.
std::vector<std::string> gather(Transport& transport, const std::string& mine) {
  const auto size = static_cast<std::size_t>(transport.size());
  const auto length = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> lengths(size);
  transport.allgather(&length, lengths.data(), std::vector<std::int64_t>(size, 1), DType::int64);
  std::int64_t total = 0;
  for (const auto n : lengths) total += n;
  std::string all(static_cast<std::size_t>(total), '\0');
  transport.allgather(mine.data(), all.data(), lengths, DType::uint8);
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (const auto n : lengths) texts.push_back(all.substr(begin, static_cast<std::size_t>(n))), begin += texts.back().size();
  return texts;
}

std::string without_trace(std::string_view checks) {
  auto words = detail::words_of(checks);
  std::erase(words, "trace");
  std::sort(words.begin(), words.end());
  return joined(words, ",");
}

// All variables that the library reads.
std::vector<std::string_view> known_variables() {
  std::vector<std::string_view> names(shared_variables.begin(), shared_variables.end());
  names.insert(names.end(), launch_variables.begin(), launch_variables.end());
  names.insert(names.end(), own_variables.begin(), own_variables.end());
  return names;
}

}  // namespace

std::optional<std::string> environment_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<int> parse_whole_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

void require_same_settings(Transport& transport, std::span<const Setting> mine) {
  if (transport.size() == 1) return;
  std::string compared;
  for (const auto& setting : mine) compared += setting.compared, compared.push_back('\0');
  // A hash and its complement have the same minimum on all ranks only if all hashes are equal.
  const auto hash = static_cast<std::int64_t>(fnv1a(fnv_start, compared));
  std::array<std::int64_t, 2> least{hash, ~hash};
  transport.allreduce(least.data(), least.data(), 2, DType::int64, CombineOp::min);
  if (least[0] == ~least[1]) return;
  const auto all = gather(transport, compared);
  if (std::all_of(all.begin(), all.end(), [&](const auto& text) { return text == all[0]; })) return;
  // The setting to report follows from rank 0 and the first rank that differs from it, and is therefore the same on all ranks.
  const auto& other = *std::find_if(all.begin(), all.end(), [&](const auto& text) { return text != all[0]; });
  const auto at = std::mismatch(all[0].begin(), all[0].end(), other.begin(), other.end()).first;
  const auto& setting = mine[static_cast<std::size_t>(std::count(all[0].begin(), at, '\0'))];
  constexpr std::size_t most = 4;  // each of a thousand ranks may have its own value
  const auto groups = detail::groups_of(gather(transport, setting.shown));
  std::string text;
  for (std::size_t i = 0; i < std::min(groups.size(), most); ++i) {
    const auto& [value, ranks] = groups[i];
    text += fmt::format("{}{}{} {}", i == 0 ? "" : "; ", detail::plural(ranks), detail::ranges(ranks),
                        value.empty() ? "without" : fmt::format("{:?}", value));
  }
  if (groups.size() > most) text += fmt::format("; and {} other values", groups.size() - most);
  throw SettingsError(fmt::format("[launch] {} must be the same on all ranks: {}", setting.name, text));
}

void require_same_environment(Transport& transport) {
  std::vector<Setting> settings;
  for (const auto name : shared_variables) {
    const char* value = std::getenv(std::string(name).c_str());
    const std::string text = value ? value : "";
    settings.push_back({std::string(name), name == "MPIGRAD_CHECKS" ? without_trace(text) : text, text});
  }
  require_same_settings(transport, settings);
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (const char letter : a) {
    auto diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(row[j + 1], std::min({diagonal + (letter != b[j] ? 1 : 0), row[j + 1] + 1, row[j] + 1}));
  }
  return row.back();
}

std::vector<std::string> mistyped_variables() {
  const auto known = known_variables();
  std::vector<std::string> warnings;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry, name = text.substr(0, text.find('='));
    if (!name.starts_with("MPIGRAD_") || std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto meant = std::find_if(known.begin(), known.end(), [&](auto each) { return edit_distance(name, each) <= 2; });
    if (meant != known.end())
      warnings.push_back(fmt::format("warning: [launch] nothing reads the variable {}; {} is read", name, *meant));
  }
  return warnings;
}

}  // namespace mpigrad
