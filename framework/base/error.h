#ifndef MPIGRAD_FRAMEWORK_BASE_ERROR_H
#define MPIGRAD_FRAMEWORK_BASE_ERROR_H
// Errors of the library. Every message has one form: `[op] the rule in words: each operand with its shape`.

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
  // The calls of this thread, for an error that another thread threw while this one waited for it.
  void set_stack_here();
  // What run() prints below the text: names of operands.
  std::string note() const { return note_ ? *note_ : std::string(); }
  void set_note(const std::string& note) { note_ = std::make_shared<const std::string>(note); }

 private:
  std::shared_ptr<const std::vector<void*>> stack_;
  std::shared_ptr<const std::string> note_;
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
