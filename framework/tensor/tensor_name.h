#pragma once
// Names of tensors in files, for all formats. A name becomes an entry of an archive, the path of an HDF5 dataset, a key of JSON
// and a word on a terminal.

#include <string>
#include <string_view>
#include <vector>

namespace mpigrad {

// Returns the reason why a text is not a valid name; "" for a valid one. A valid name has 1 to 1000 bytes of UTF-8 without
// control characters, NUL and backslashes. Its parts between slashes are neither empty nor "." or "..".
std::string fault_of_tensor_name(std::string_view name);
// Error: an invalid or a repeated name. `file` begins the message: "[npz] PATH".
void require_tensor_names(const std::vector<std::string>& names, const std::string& file);

}  // namespace mpigrad
