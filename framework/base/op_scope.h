#ifndef MPIGRAD_FRAMEWORK_BASE_OP_SCOPE_H
#define MPIGRAD_FRAMEWORK_BASE_OP_SCOPE_H
// The name of the running op, for errors in lower layers.

#include <string_view>

namespace mpigrad::detail {

// The op that runs on this thread; empty outside of ops.
std::string_view current_op();
class OpScope {
 public:
  explicit OpScope(std::string_view op);
  ~OpScope();
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  std::string_view previous_;
};

}  // namespace mpigrad::detail

#endif
