#include "ops/extents.h"

#include "framework/base/error.h"
#include "framework/base/joined.h"

namespace mpigrad {
namespace {

// In the order of PaddingMode.
constexpr std::array<std::string_view, 5> modes{"zeros", "circular", "replicate", "reflect", "symmetric"};

}  // namespace

std::string_view name_of(PaddingMode mode) { return modes[static_cast<std::size_t>(mode)]; }

PaddingMode padding_mode(std::string_view name) {
  for (std::size_t i = 0; i < modes.size(); ++i)
    if (name == modes[i]) return static_cast<PaddingMode>(i);
  fail("[padding_mode] no mode is called {}; modes are {}", name, joined(modes, ", "));
}

void require_window(std::string_view op, const Extent3& kernel, const Extent3& stride, const Extent3& dilation) {
  for (std::size_t i = 0; i < 3; ++i)
    if (!(kernel[i] > 0 && stride[i] > 0 && dilation[i] > 0))
      fail("[{}] kernel, stride and dilation are at least 1: ({}), ({}), ({})", op, joined(kernel, ", "), joined(stride, ", "),
           joined(dilation, ", "));
}

}  // namespace mpigrad
