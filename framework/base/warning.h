#pragma once
// Warnings about legal uses that are most likely mistakes.

#include <string>
#include <string_view>
#include <vector>

namespace mpigrad {

// Prints `text` and a newline to standard error, the first time that this process warns of `what`. Ranks that are threads of one
// process print one warning together.
void warn_once(std::string_view what, const std::string& text);

namespace detail {
// Returns and forgets the warnings printed since the last call, so that they would be printed again: for tests.
std::vector<std::string> take_warnings();
}  // namespace detail

}  // namespace mpigrad
