#ifndef MPIGRAD_FRAMEWORK_BASE_ERROR_H
#define MPIGRAD_FRAMEWORK_BASE_ERROR_H
// Errors of the library. Every message has one form: `[op] the rule in words: each operand with its shape`.

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace mpigrad {

// Thrown for every misuse and every failure; the text is complete and needs no further context.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {
// The form in which messages show an argument: itself, or what a specialisation returns. tensor.h has tensors shown in short.
template <class T>
struct InMessage {
  static const T& of(const T& x) { return x; }
};

// Out of line, as formatting is: every file includes this.
[[noreturn]] void throw_error(fmt::string_view format, fmt::format_args arguments);
template <class... Shown>
[[noreturn]] void throw_shown(fmt::string_view format, const Shown&... shown) {
  throw_error(format, fmt::make_format_args(shown...));
}
}  // namespace detail

// fail("[matmul] inner extents differ: {} and {}", a.shape(), b.shape());
template <class... Arguments>
[[noreturn]] void fail(fmt::format_string<Arguments...> format, const Arguments&... arguments) {
  detail::throw_shown(format, detail::InMessage<Arguments>::of(arguments)...);
}

// Arguments are made whether or not the condition holds: where one takes work, such as to_string(), it is `if (...) fail(...)`.
template <class... Arguments>
void require(bool condition, fmt::format_string<Arguments...> format, const Arguments&... arguments) {
  if (!condition) detail::throw_shown(format, detail::InMessage<Arguments>::of(arguments)...);
}

}  // namespace mpigrad

#endif
