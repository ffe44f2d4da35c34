#include "examples/tool/together.h"

#include <cstdint>
#include <string>

namespace mpigrad::tool {

void together(Transport& transport, const std::function<void()>& f) {
  std::string error;
  bool failed = false;
  std::int64_t usage = 0;
  try {
    f();
  } catch (const UsageError& exception) {
    error = exception.what();
    failed = true, usage = 1;
  } catch (const std::exception& exception) {
    error = exception.what();
    failed = true;
  }
  std::int64_t first = failed ? transport.rank() : transport.size();
  transport.allreduce(&first, &first, 1, DType::int64, Reduction::min);
  if (first == transport.size()) return;
  const int root = static_cast<int>(first);
  auto length = static_cast<std::int64_t>(error.size());
  transport.broadcast(&length, 1, DType::int64, root);
  transport.broadcast(&usage, 1, DType::int64, root);
  error.resize(static_cast<std::size_t>(length));
  transport.broadcast(error.data(), length, DType::uint8, root);
  if (usage != 0) throw UsageError(error);
  throw SharedError(error);
}

}  // namespace mpigrad::tool
