#pragma once
// What errors say; for programs with and without doctest.

#include <functional>
#include <string>

#include "framework/base/error.h"

namespace mpigrad::testing {

// What an Error says, or nothing if none is thrown.
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
