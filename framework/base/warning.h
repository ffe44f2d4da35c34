#pragma once
// Warnings: of what is legal and most likely not meant.

#include <string>
#include <string_view>
#include <vector>

namespace mpigrad {

// Prints `text` and a newline to standard error, the first time that this process warns of `what`. Threads that are ranks of one
// process warn once among them.
void warn_once(std::string_view what, const std::string& text);

namespace detail {
// What has been printed since the last call, which is then forgotten, so that it would be printed again: for tests.
std::vector<std::string> take_warnings();
}  // namespace detail

}  // namespace mpigrad
