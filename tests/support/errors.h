#pragma once
// Messages of errors, for programs with and without doctest.

#include <functional>
#include <string>

#include "framework/base/error.h"

namespace mpigrad::testing {

// The message of the Error that body throws, or empty if it throws none.
inline std::string error_text(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace mpigrad::testing
