#include "framework/tensor/tensor_name.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/base/printable.h"

namespace mpigrad {

namespace {
constexpr std::size_t most_of_tensor_name = 1000, shown_of_tensor_name = 80;
}

std::string fault_of_tensor_name(std::string_view name) {
  if (name.empty()) return "it is empty";
  if (name.size() > most_of_tensor_name) return fmt::format("it has {} bytes, more than {}", name.size(), most_of_tensor_name);
  if (name.find('\\') != std::string_view::npos) return "it has a backslash";
  if (printable(name) != name) return "it has control characters or bytes that are not UTF-8";
  for (std::size_t begin = 0; begin <= name.size();) {
    const auto end = std::min(name.find('/', begin), name.size());
    const auto part = name.substr(begin, end - begin);
    if (part.empty()) return "it has an empty part before, between or after slashes";
    if (part == "." || part == "..") return fmt::format("it has the part '{}'", part);
    begin = end + 1;
  }
  return {};
}

void require_tensor_names(const std::vector<std::string>& names, const std::string& file) {
  for (const auto& name : names)
    if (const auto fault = fault_of_tensor_name(name); !fault.empty())
      fail("{}: '{}' is not a valid name of a tensor: {}", file, printable(name, shown_of_tensor_name), fault);
  auto sorted = names;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) fail("{}: there are two tensors '{}'", file, printable(*twice, shown_of_tensor_name));
}

}  // namespace mpigrad
