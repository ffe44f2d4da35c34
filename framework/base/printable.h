#pragma once
// Text of unknown origin (names and attributes in files, names of files) where people read it.

#include <string>
#include <string_view>

namespace mpigrad {

// `text` as one line that does nothing to a terminal: control characters, escape sequences, what changes the direction of writing
// and bytes that are not UTF-8 as \xNN, all else as it is; at most `most` bytes of it, then "...". Of what it gives it changes
// nothing.
std::string printable(std::string_view text, std::size_t most = 1000);

}  // namespace mpigrad
