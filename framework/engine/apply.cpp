#include "framework/engine/op.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "framework/engine/cost.h"
#include "framework/engine/half_operands.h"
#include "framework/engine/op_observer.h"
#include "framework/engine/parameter.h"

namespace mpigrad {
namespace {
thread_local CostLog* cost_log = nullptr;
}  // namespace

CostLog::CostLog() : previous_(cost_log) { cost_log = this; }
CostLog::~CostLog() { cost_log = previous_; }
void CostLog::add(const Line& line) {
  for (auto* log = cost_log; log; log = log->previous_) {
    log->lines.push_back(line);
    if (log->told) log->told();
  }
}
CostLog::Pause::Pause() : before_(std::exchange(cost_log, nullptr)) {}
CostLog::Pause::~Pause() { cost_log = before_; }

namespace detail {
namespace {

bool any_stand_in(Inputs in) {
  return std::any_of(in.begin(), in.end(), [](const Tensor& x) { return x && x.is_stand_in(); });
}

// True if operands are on different grids or on different devices.
bool are_apart(Inputs in) {
  const Tensor* first = nullptr;
  const GridShape* grid = nullptr;
  for (const auto& x : in) {
    if (!x) continue;
    if (!first) first = &x;
    const auto* own = x.layout() ? x.layout()->grid.get() : nullptr;
    if (x.device() != first->device() || (own && grid && own != grid)) return true;
    if (own) grid = own;
  }
  return false;
}

DeviceKind common_device(std::string_view op, Inputs in) {
  require(in.empty() || in[0], "[{}] the first operand is not a tensor", op);
  const Tensor* first = nullptr;
  for (const auto& x : in) {
    if (!x) continue;
    if (!first) first = &x;
    require(x.device() == first->device() || x.is_stand_in() == first->is_stand_in(),
            "[{}] operands belong to different stages of a pipeline; a layer of your own calls at_stage(x) first: {}, {}", op,
            *first, x);
    require(x.device() == first->device(), "[{}] operands are on different devices: {} and {}", op, name_of(first->device()),
            name_of(x.device()));
    if (!x.storage()) refuse_unkept(op, "an operand's elements", x);
  }
  return first ? first->device() : current_device();
}

}  // namespace

namespace {
void refuse_complex(std::string_view op, Inputs in) {
  for (const auto& x : in)
    require(!x || !is_complex(x.dtype()),
            "[{}] does not take complex tensors; view_as_real(x), real(x) and imag(x) give real ones: {}", op, x);
}
}  // namespace

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

bool counting_costs() { return cost_log != nullptr; }

namespace {
std::size_t lines_so_far() { return cost_log ? cost_log->lines.size() : 0; }

// `first`: the number of lines at the start. The lines that count_cost() has added since then are not part of the op's time.
void add_line(std::string_view op, const Cost& cost, double start, std::size_t first, bool communicates, Inputs in, Outputs out) {
  double seconds = seconds_now() - start;
  for (auto i = first; i < cost_log->lines.size(); ++i)
    if (const auto& line = cost_log->lines[i]; line.communicates && line.outputs.empty()) seconds -= line.seconds;
  CostLog::Line line{op, cost.flops, cost.bytes, start, seconds, communicates, {}, {}, {}, {}};
  for (const auto& x : in) {
    line.inputs.push_back(x ? x.shape() : Shape());
    line.input_types.push_back(x ? x.dtype() : DType::float32);
  }
  for (const auto& y : out) line.outputs.push_back(y.shape()), line.output_types.push_back(y.dtype());
  CostLog::add(line);
}
}  // namespace

// Costs of communication outside of ops: reductions that are started and waited for.
void count_cost(std::string_view what, const Cost& cost, double seconds, Inputs in, Outputs out) {
  add_line(what, cost, seconds_now() - seconds, lines_so_far(), true, in, out);
}

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

namespace {
thread_local bool recorded = false;
}
bool recorded_call() { return recorded; }
RecordedCall::RecordedCall(bool now) : previous_(std::exchange(recorded, now)) {}
RecordedCall::~RecordedCall() { recorded = previous_; }

namespace {

// Makes outputs without derivative constants; sets `layout` of all outputs.
void finish_outputs(Outputs out, bool constant, const LayoutPtr& layout) {
  for (auto& y : out) {
    TensorAccess::set_constant(y, constant || !is_differentiable(y.dtype()));
    if (layout) y = y.with_layout(layout);
  }
}

bool all_constant(Inputs in) {
  for (const auto& x : in)
    if (x && !x.is_constant() && is_differentiable(x.dtype())) return false;
  return true;
}

Cost cost_of(const void* op, const OpFunctions& f, Inputs in, Outputs out) {
  if (f.cost) return f.cost(op, in, out);
  Cost cost;
  for (const auto& x : in) cost.bytes += static_cast<double>(x.bytes());
  for (const auto& y : out) cost.bytes += static_cast<double>(y.bytes()), cost.flops += static_cast<double>(y.elements());
  return cost;
}

// CPU kernels compute in float32 and float64 and round once; they are the reference for the 16-bit kernels of GPUs.
void run_on_cpu(const void* op, const OpFunctions& f, Inputs in, Outputs out) {
  if (f.traits.takes_half || !any_half(in, out)) return f.run_on_cpu(op, in, out);
  const Tensors wide = widened(in);
  Tensors results = wide_outputs(out);
  f.run_on_cpu(op, wide, results);
  narrow(results, out);
}

void run(const void* op, const OpFunctions& f, DeviceKind device, Inputs in, Outputs out) {
  if (f.traits.communicates) return f.run(op, in, out);
  switch (device) {
    case DeviceKind::cpu:
      for (const auto& x : in)
        if (x && x.storage()) x.storage()->wait();  // on this thread, and not on one of a kernel's
      return run_on_cpu(op, f, in, out);
    case DeviceKind::cuda:
      if (!f.run_on_cuda) refuse_cuda(f.traits.name);
      return f.run_on_cuda(op, in, out);
    case DeviceKind::dry:
      for (const auto& x : in)
        if (x) (void)x.raw();  // restores dropped memory, which then counts
      return;
  }
}

}  // namespace

void run_again(const void* op, const OpFunctions& f, Inputs in, Outputs out) {
  const OpScope running(f.traits.name);
  const bool counting = counting_costs();
  const double start = counting ? seconds_now() : 0;
  const auto first = lines_so_far();
  run(op, f, out[0].device(), in, out);
  if (counting) add_line(f.traits.name, cost_of(op, f, in, out), start, first, f.traits.communicates, in, out);
}

OpObserver*& OpObserver::of_this_thread() {
  static thread_local OpObserver* observer = nullptr;
  return observer;
}
OpObserver::OpObserver() {
  require(of_this_thread() == nullptr, "[op] there is already an observer of this thread's ops");
  of_this_thread() = this;
}
OpObserver::~OpObserver() { of_this_thread() = nullptr; }

void bring_together(std::string_view op, Tensors& in) {
  if (!are_apart(in)) return;
  for (const auto& x : in)
    if (x && x.layout()) return x.layout()->grid->bring_together(op, in);
}

Tensors apply_all(const void* op, const OpFunctions& f, Tensors in) {
  bring_together(f.traits.name, in);
  const DeviceKind device = common_device(f.traits.name, in);
  if (!f.traits.takes_complex) refuse_complex(f.traits.name, in);

  // Layouts are checked before local shapes, so that all ranks throw the same error.
  bool distributed = false;
  for (const auto& x : in) distributed = distributed || (x && x.layout());
  LayoutPtr layout;
  Types types;
  try {
    if (distributed) layout = f.layout ? f.layout(op, in) : refuse_layout(f.traits.name, in);
    types = f.infer(op, in);
  } catch (Error& error) {
    error.set_note(names_of(in));
    throw;
  }
  const OpScope running(f.traits.name);
  const bool constant = !f.traits.differentiable || all_constant(in);
  const bool record = !constant && Tape::recording();
  if (!record && !constant) Tape::read_unrecorded(in);
  const RecordedCall scope(f.traits.communicates && record);
  const bool stand_in = any_stand_in(in);
  const bool counting = counting_costs() && !stand_in;
  const double start = counting ? seconds_now() : 0;
  const auto first = lines_so_far();

  Tensors out;
  out.reserve(types.size());
  if (f.view) {
    out.push_back(f.view(op, in));
  } else {
    if (f.reuse)
      if (auto y = f.reuse(op, in)) out.push_back(std::move(y));
    for (auto i = out.size(); i < types.size(); ++i)
      out.push_back(stand_in ? Tensor::stand_in(types[i])
                             : Tensor::with_room(types[i], device, HaloRoom::bytes(types[i], layout)));
    run(op, f, device, in, out);
  }
  if (counting) add_line(f.traits.name, cost_of(op, f, in, out), start, first, f.traits.communicates, in, out);

  finish_outputs(out, constant, layout);
  if (auto* observer = OpObserver::of_this_thread(); observer && !stand_in) observer->ran(f, op, in, out);
  if (record)
    Tape::record({.name = f.traits.name,
                  .communicates = f.traits.communicates,
                  .keeps_inputs = f.kept_inputs ? f.kept_inputs(op) : f.traits.keeps_inputs,
                  .keeps_outputs = f.kept_outputs ? f.kept_outputs(op) : f.traits.keeps_outputs,
                  .inputs = std::move(in),
                  .outputs = out,
                  .vjp = f.vjp(op),
                  .start_reduction = f.start_reduction ? f.start_reduction(op) : StartReduction{},
                  .equal_on = f.equal_on ? f.equal_on(op) : 0,
                  .divisor = f.divisor ? f.divisor(op) : 0});
  return out;
}

}  // namespace detail
}  // namespace mpigrad
