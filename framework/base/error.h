#ifndef MPIGRAD_FRAMEWORK_BASE_ERROR_H
#define MPIGRAD_FRAMEWORK_BASE_ERROR_H
// Errors of the library. Every message has the form `[op] the rule in words: each operand with its shape`.

#include <fmt/core.h>

#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace mpigrad {

// Thrown for every misuse and every failure; the text is complete and needs no further context.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text);
  // Return addresses of the calls that led to the error, the innermost first; run() prints the program's line from them. Empty
  // where the C library has no backtrace().
  std::span<void* const> stack() const { return stack_ ? std::span<void* const>(*stack_) : std::span<void* const>(); }
  // Replaces the stack by the calls of this thread: for an error that another thread threw while this one waited.
  void set_stack_here();
  // Names of operands, which run() prints below the text.
  std::string note() const { return note_ ? *note_ : std::string(); }
  void set_note(const std::string& note) { note_ = std::make_shared<const std::string>(note); }

 private:
  std::shared_ptr<const std::vector<void*>> stack_;
  std::shared_ptr<const std::string> note_;
};

namespace detail {
// The form in which messages show an argument: itself, or what a specialisation returns. tensor.h shows tensors without their
// values.
template <class T>
struct InMessage {
  static const T& of(const T& x) { return x; }
};

// Out of line, like the formatting, because every file includes this header.
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

// Throws unless `condition` holds. The arguments are evaluated in either case: where that is expensive, as with to_string(),
// write `if (...) fail(...)`.
template <class... Arguments>
void require(bool condition, fmt::format_string<Arguments...> format, const Arguments&... arguments) {
  if (!condition) detail::throw_shown(format, detail::InMessage<Arguments>::of(arguments)...);
}

}  // namespace mpigrad

#endif
