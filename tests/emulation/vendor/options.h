#pragma once
// Refusals requested by a test: words separated by commas in an environment variable, which is read at each call, so that one
// process can request several in turn.

#include <cstdlib>
#include <string>
#include <string_view>

namespace mpigrad::emulation::vendor {

class Options {
 public:
  explicit Options(const char* variable) {
    if (const char* value = std::getenv(variable)) text_ = value;
  }
  bool has(std::string_view word) const {
    std::string_view rest = text_;
    while (!rest.empty()) {
      const auto end = rest.find(',');
      if (rest.substr(0, end) == word) return true;
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    }
    return false;
  }

 private:
  std::string text_;
};

}  // namespace mpigrad::emulation::vendor
