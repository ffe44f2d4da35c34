#include "comm/together.h"

#include "comm/process/problem.h"

namespace mpigrad {

detail::Failure detail::first_failure(Transport& transport, const std::function<void()>& f,
                                      const std::function<std::int64_t(const std::exception&)>& kind) {
  Failure result;
  try {
    f();
  } catch (const std::exception& exception) {
    result = {.failed = true, .text = problem_of(exception), .kind = kind ? kind(exception) : 0};
  }
  std::int64_t first = result.failed ? transport.rank() : transport.size();
  transport.allreduce(&first, &first, 1, DType::int64, CombineOp::min);
  if (first == transport.size()) return {};
  const int root = static_cast<int>(first);
  result.failed = true;
  std::int64_t about[] = {static_cast<std::int64_t>(result.text.size()), result.kind};
  transport.bcast(about, 2, DType::int64, root);
  result.text.resize(static_cast<std::size_t>(about[0]));
  result.kind = about[1];
  transport.bcast(result.text.data(), about[0], DType::uint8, root);
  return result;
}

void together(const Communicator& comm, const std::function<void()>& f) { together(&comm.transport(), f); }

void together(Transport* transport, const std::function<void()>& f) {
  if (!transport) return f();
  if (const auto failure = detail::first_failure(*transport, f); failure.failed) throw SharedError(failure.text);
}

std::string text_of_rank(Transport& transport, std::string text, int root) {
  auto length = static_cast<std::int64_t>(text.size());
  transport.bcast(&length, 1, DType::int64, root);
  text.resize(static_cast<std::size_t>(length));
  transport.bcast(text.data(), length, DType::uint8, root);
  return text;
}

}  // namespace mpigrad
