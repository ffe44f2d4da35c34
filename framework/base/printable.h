#pragma once
// Makes text of unknown origin (names and attributes in files, names of files) safe to print.

#include <string>
#include <string_view>

namespace mpigrad {

// Returns `text` as one line that cannot control a terminal: control characters, escape sequences, characters that change the
// direction of writing and bytes that are not UTF-8 become \xNN, all else is unchanged; at most `most` bytes of it, then "...".
// Idempotent.
std::string printable(std::string_view text, std::size_t most = 1000);

}  // namespace mpigrad
