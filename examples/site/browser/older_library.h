#pragma once
// Replacements for parts of the C++ library that Emscripten 3.1.6 lacks (g++ 12 has them). Every file of the build for browsers
// includes this file first; no other build does.

#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>

#if !defined(__cpp_lib_bit_cast)
namespace std {
template <class To, class From>
constexpr To bit_cast(const From& from) noexcept {
  static_assert(sizeof(To) == sizeof(From) && is_trivially_copyable_v<To> && is_trivially_copyable_v<From>);
  return __builtin_bit_cast(To, from);
}
}  // namespace std
#endif

#if !defined(__cpp_lib_to_chars)
namespace std {
// Uses strtod, but rejects what from_chars does not accept: leading blanks and plus, hexadecimal numbers.
inline from_chars_result from_chars(const char* first, const char* last, double& value) {
  const string text(first, last);
  const auto digits = text.find_first_not_of('-');
  if (digits > 1 || text.size() == digits || text[digits] == '+' || isspace(static_cast<unsigned char>(text[digits])))
    return {first, errc::invalid_argument};
  char* stop = nullptr;
  const double found = strtod(text.c_str(), &stop);
  if (text.size() > digits + 1 && (text[digits + 1] == 'x' || text[digits + 1] == 'X'))
    stop = const_cast<char*>(text.c_str()) + digits + 1;
  if (stop == text.c_str()) return {first, errc::invalid_argument};
  if (isinf(found) && text[digits] != 'i' && text[digits] != 'I')
    return {first + (stop - text.c_str()), errc::result_out_of_range};
  value = found;
  return {first + (stop - text.c_str()), errc()};
}
}  // namespace std
#endif

#if !defined(__cpp_lib_smart_ptr_for_overwrite)
namespace std {
template <class T>
unique_ptr<T> make_unique_for_overwrite(size_t count) {
  return unique_ptr<T>(new remove_extent_t<T>[count]);
}
}  // namespace std
#endif
