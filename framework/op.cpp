#include "framework/op.h"

#include <chrono>
#include <string>

#include "framework/cost.h"
#include "framework/parameter.h"

namespace mpigrad {
namespace {
thread_local CostLog* cost_log = nullptr;
thread_local std::string_view running_op;
}  // namespace

CostLog::CostLog() : previous_(cost_log) { cost_log = this; }
CostLog::~CostLog() { cost_log = previous_; }

namespace detail {

DeviceKind common_device(std::string_view op, Inputs in) {
  require(in.empty() || in[0], "[{}] the first operand is no tensor", op);
  const Tensor* first = nullptr;
  for (const auto& x : in) {
    if (!x) continue;
    if (!first) first = &x;
    require(x.device() == first->device(), "[{}] operands are on different devices: {} and {}", op, name_of(first->device()),
            name_of(x.device()));
    if (!x.storage()) refuse_unkept(op, "an operand's elements", x);
  }
  return first ? first->device() : current_device();
}

LayoutPtr refuse_layout(std::string_view op, Inputs in) {
  for (const auto& x : in)
    if (x && x.layout())
      fail("[{}] is not defined on a distributed tensor; {}: {}", op,
           parameter_hint(in, "redistribute it or take its local part first"), x);
  return nullptr;
}

void refuse_cuda(std::string_view op) {
  fail("[{}] has no CUDA kernel: copy its operands with to(x, DeviceKind::cpu) first", op);
}

std::string_view current_op() { return running_op; }
OpScope::OpScope(std::string_view op) : previous_(std::exchange(running_op, op)) {}
OpScope::~OpScope() { running_op = previous_; }

void finish_outputs(Outputs out, bool constant, const LayoutPtr& layout) {
  for (auto& y : out) {
    TensorAccess::set_constant(y, constant || !is_floating(y.dtype()));
    if (layout) y = y.with_layout(layout);
  }
}

bool all_constant(Inputs in) {
  for (const auto& x : in)
    if (x && !x.is_constant() && is_floating(x.dtype())) return false;
  return true;
}

namespace {
thread_local bool recorded = false;
}
bool recorded_call() { return recorded; }
RecordedCall::RecordedCall(bool now) : previous_(std::exchange(recorded, now)) {}
RecordedCall::~RecordedCall() { recorded = previous_; }

bool counting_costs() { return cost_log != nullptr; }

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void count_cost(std::string_view op, const Cost& cost, double seconds, Inputs in, Outputs out) {
  CostLog::Line line{op, cost.flops, cost.bytes, seconds, {}, {}};
  for (const auto& x : in) line.inputs.push_back(x ? x.shape() : Shape());
  for (const auto& y : out) line.outputs.push_back(y.shape());
  cost_log->lines.push_back(std::move(line));
}

}  // namespace detail
}  // namespace mpigrad
