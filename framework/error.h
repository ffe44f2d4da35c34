#pragma once
// Errors of the library. Every message has one form: `[op] the rule in words: each operand with its shape`.

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace mpigrad {

// Thrown for every misuse and every failure; the text is complete and needs no further context.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// fail("[matmul] inner extents differ: {} and {}", a.shape(), b.shape());
template <class... Arguments>
[[noreturn]] void fail(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  throw Error(fmt::format(format, std::forward<Arguments>(arguments)...));
}

template <class... Arguments>
void require(bool condition, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (!condition) fail(format, std::forward<Arguments>(arguments)...);
}

}  // namespace mpigrad
