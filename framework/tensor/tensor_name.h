#pragma once
// Names of tensors in files of every format. A name becomes an entry of an archive, the path of an HDF5 dataset, a key of JSON
// and a word on a terminal.

#include <string>
#include <string_view>
#include <vector>

namespace mpigrad {

// Why a text is no name; "" if it is one: 1 to 1000 bytes of UTF-8 without control characters, NUL and backslashes, whose parts
// between slashes are neither empty nor "." or "..".
std::string fault_of_tensor_name(std::string_view name);
// Error: one of the names is none, or is there twice. `file` begins the message: "[npz] PATH".
void require_tensor_names(const std::vector<std::string>& names, const std::string& file);

}  // namespace mpigrad
