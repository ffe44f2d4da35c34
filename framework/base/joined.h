#pragma once
// Lists as text for messages. fmt::join compiles the formatting of numbers again in every file that uses it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mpigrad {

namespace detail {
std::string joined(std::span<const int> values, std::string_view separator);
std::string joined(std::span<const std::int64_t> values, std::string_view separator);
std::string joined(std::span<const std::size_t> values, std::string_view separator);
std::string joined(std::span<const double> values, std::string_view separator);
std::string joined(std::span<const std::string> values, std::string_view separator);
std::string joined(std::span<const std::string_view> values, std::string_view separator);
}  // namespace detail

// joined(kernel, " x ") is "3 x 3 x 1". `values` are contiguous: vectors, arrays, shapes, spans.
template <class Values>
std::string joined(const Values& values, std::string_view separator) {
  return detail::joined(std::span(values), separator);
}

}  // namespace mpigrad
