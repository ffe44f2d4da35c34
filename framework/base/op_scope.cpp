#include "framework/base/op_scope.h"

#include <utility>

namespace mpigrad::detail {

namespace {
thread_local std::string_view running_op;
}

std::string_view current_op() { return running_op; }
OpScope::OpScope(std::string_view op) : previous_(std::exchange(running_op, op)) {}
OpScope::~OpScope() { running_op = previous_; }

}  // namespace mpigrad::detail
