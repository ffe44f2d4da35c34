#include "framework/base/joined.h"

#include <fmt/format.h>

namespace mpigrad::detail {
namespace {

template <class T>
std::string joined_values(std::span<const T> values, std::string_view separator) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += separator;
    text += fmt::format("{}", values[i]);
  }
  return text;
}

}  // namespace

std::string joined(std::span<const int> values, std::string_view separator) { return joined_values(values, separator); }
std::string joined(std::span<const std::int64_t> values, std::string_view separator) { return joined_values(values, separator); }
std::string joined(std::span<const std::size_t> values, std::string_view separator) { return joined_values(values, separator); }
std::string joined(std::span<const double> values, std::string_view separator) { return joined_values(values, separator); }
std::string joined(std::span<const std::string> values, std::string_view separator) { return joined_values(values, separator); }
std::string joined(std::span<const std::string_view> values, std::string_view separator) {
  return joined_values(values, separator);
}

}  // namespace mpigrad::detail
