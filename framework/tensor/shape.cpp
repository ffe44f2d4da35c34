#include "framework/tensor/shape.h"

#include <fmt/format.h>

#include "framework/base/joined.h"

namespace mpigrad {

std::string to_string(const Shape& shape) { return fmt::format("[{}]", joined(shape.span(), ", ")); }

int checked_dimension(const char* op, int dimension, int rank) {
  require(dimension >= -rank && dimension < rank, "[{}] dimension {} is outside a tensor of {} dimensions", op, dimension, rank);
  return dimension < 0 ? dimension + rank : dimension;
}

}  // namespace mpigrad

fmt::format_context::iterator fmt::formatter<mpigrad::Shape>::format(const mpigrad::Shape& shape,
                                                                     fmt::format_context& context) const {
  return fmt::format_to(context.out(), "{}", mpigrad::to_string(shape));
}
