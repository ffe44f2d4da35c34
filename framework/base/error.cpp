#include "framework/base/error.h"

#if __has_include(<execinfo.h>)  // missing in some C libraries
#include <execinfo.h>
#define MPIGRAD_HAS_BACKTRACE
#endif
#include <fmt/format.h>

#include <array>

namespace mpigrad {
namespace {

std::vector<void*> calls_here() {
#ifdef MPIGRAD_HAS_BACKTRACE
  std::array<void*, 64> calls{};
  const int count = backtrace(calls.data(), static_cast<int>(calls.size()));
  return std::vector<void*>(calls.begin(), calls.begin() + count);  // braces would make a vector of two pointers
#else
  return {};
#endif
}

}  // namespace

Error::Error(const std::string& text)
    : std::runtime_error(text), stack_(std::make_shared<const std::vector<void*>>(calls_here())) {}

void Error::set_stack_here() { stack_ = std::make_shared<const std::vector<void*>>(calls_here()); }

void detail::throw_error(fmt::string_view format, fmt::format_args arguments) { throw Error(fmt::vformat(format, arguments)); }

}  // namespace mpigrad
