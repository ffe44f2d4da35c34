#include "framework/base/error.h"

#include <fmt/format.h>

namespace mpigrad::detail {

void throw_error(fmt::string_view format, fmt::format_args arguments) { throw Error(fmt::vformat(format, arguments)); }

}  // namespace mpigrad::detail
