#include "ops/extents.h"

#include "framework/base/error.h"
#include "framework/base/joined.h"

namespace mpigrad {

void require_window(std::string_view op, const Extent3& kernel, const Extent3& stride, const Extent3& dilation) {
  for (std::size_t i = 0; i < 3; ++i)
    if (!(kernel[i] > 0 && stride[i] > 0 && dilation[i] > 0))
      fail("[{}] kernel, stride and dilation are at least 1: ({}), ({}), ({})", op, joined(kernel, ", "), joined(stride, ", "),
           joined(dilation, ", "));
}

}  // namespace mpigrad
