#pragma once
// What an op is. An op is one struct: its attributes, and
//
//   static constexpr std::string_view name        as it appears in errors and on the tape
//   Types infer(Inputs in) const                  types of the outputs; refuses what does not fit, naming rule and operands
//   void run(Cpu, Inputs in, Outputs out) const   the kernel, one per device
//   void run(Cuda, Inputs in, Outputs out) const
//   Tensors vjp(const Replay& at, Inputs cotangents) const   cotangents of the inputs, written in ops and nothing else
//
// and, where the default does not fit,
//
//   Cost cost(Inputs in, Outputs out) const       floating-point operations and bytes; default: one pass over all operands
//   LayoutPtr layout(Inputs in) const             what the op means on a distributed tensor; default: refused by name
//   Tensor view(Inputs in) const                  instead of run: the output shares the input's storage
//   Tensor reuse(Inputs in) const                 beside run: memory for the output, or none; see sole_owner
//   static constexpr unsigned keeps_inputs, keeps_outputs    bit i: the vjp reads the elements of input (output) i; default none
//   unsigned kept_outputs() const                 the latter, where it depends on the attributes
//   static constexpr bool communicates = true     takes part in every replay; `run(Inputs, Outputs)` serves all devices
//   static constexpr bool differentiable = false  outputs are constants (comparisons, indices)
//   static constexpr bool takes_half = true       `run` on the CPU takes bfloat16 and float16 as well; to the others their
//   elements
//                                                 come as float32, and what they compute is rounded once
//   int equal_on() const                          on how many ranks the output is equal without being of type "same"
//   auto start_reduction(const Tensor& cotangent) const   the vjp of a parameter's replication, started without waiting, and
//   std::uint64_t reduces_over() const            the number of its group of ranks

// Kernels: the library's ops declare both. In a build with CUDA the second is defined in ops/cuda, and a missing one is a link
// error; the files ops/cuda/*absent.cpp define it elsewhere, where no tensor can be on a GPU, so that no use is ever reached. An
// op that does not declare the second (a user's own) is refused by name on a GPU.

#include <concepts>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/tape.h"
#include "framework/tensor.h"

namespace mpigrad {

using Types = std::vector<TensorType>;
using Tensors = std::vector<Tensor>;
using Inputs = std::span<const Tensor>;
using Outputs = std::span<Tensor>;

struct Cost {
  double flops = 0;
  double bytes = 0;
};

namespace detail {

template <class Op>
constexpr bool communicates() {
  if constexpr (requires { Op::communicates; }) return Op::communicates;
  return false;
}
template <class Op>
constexpr bool differentiable() {
  if constexpr (requires { Op::differentiable; }) return Op::differentiable;
  return true;
}
template <class Op>
constexpr bool takes_half() {
  if constexpr (requires { Op::takes_half; }) return Op::takes_half;
  return false;
}
template <class Op>
constexpr unsigned keeps_inputs() {
  if constexpr (requires { Op::keeps_inputs; }) return Op::keeps_inputs;
  return 0;
}
template <class Op>
unsigned keeps_outputs(const Op& op) {
  if constexpr (requires { op.kept_outputs(); }) return op.kept_outputs();
  else if constexpr (requires { Op::keeps_outputs; }) return Op::keeps_outputs;
  else return 0;
}

template <class Op>
concept Differentiable = requires(const Op op, const Replay& at, Inputs cotangents) {
  { op.vjp(at, cotangents) } -> std::same_as<Tensors>;
};

DeviceKind common_device(std::string_view op, Inputs in);
LayoutPtr refuse_layout(std::string_view op, Inputs in);
[[noreturn]] void refuse_cuda(std::string_view op);
// 16-bit tensors as float32: whether there are any; copies of operands; room for results, which are rounded to `out`.
bool any_half(Inputs in, Outputs out);
Tensors widened(Inputs in);
Tensors wide_outputs(Outputs out);
void narrow(Inputs wide, Outputs out);
// Makes constants of outputs that carry no derivative; the others get `layout`.
void finish_outputs(Outputs out, bool constant, const LayoutPtr& layout);
bool all_constant(Inputs in);
void count_cost(std::string_view op, const Cost& cost, double seconds, Inputs in, Outputs out);
bool counting_costs();
double seconds_now();

// The op that runs on this thread, for errors from below; empty outside of ops.
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

// Whether the communication call that runs on this thread is recorded: checks between ranks compare it, because a rank that does
// not record what others do will be missing in the replay.
bool recorded_call();
class RecordedCall {
 public:
  explicit RecordedCall(bool recorded);
  ~RecordedCall();
  RecordedCall(const RecordedCall&) = delete;
  RecordedCall& operator=(const RecordedCall&) = delete;

 private:
  bool previous_;
};

}  // namespace detail

template <class Op>
Cost cost_of(const Op& op, Inputs in, Outputs out) {
  if constexpr (requires { op.cost(in, out); }) {
    return op.cost(in, out);
  } else {
    Cost cost;
    for (const auto& x : in) cost.bytes += static_cast<double>(x.bytes());
    for (const auto& y : out) cost.bytes += static_cast<double>(y.bytes()), cost.flops += static_cast<double>(y.elements());
    return cost;
  }
}

// Whether a cotangent that a vjp was given may be overwritten: replay() gives its own reference up, so one reference means that
// nobody reads it afterwards. Only before the first copy of the handle.
inline bool sole_owner(const Tensor& cotangent) {
  return cotangent.storage() && cotangent.storage().use_count() == 1 && !cotangent.storage()->foreign();
}

namespace detail {

// The kernels of the CPU compute with float32 and float64. Rounding once, they are what the 16-bit kernels of a GPU approach.
template <class Op>
void run_on_cpu(const Op& op, Inputs in, Outputs out) {
  if (takes_half<Op>() || !any_half(in, out)) return op.run(Cpu{}, in, out);
  const Tensors wide = widened(in);
  Tensors results = wide_outputs(out);
  op.run(Cpu{}, Inputs(wide), Outputs(results));
  narrow(results, out);
}

}  // namespace detail

// Runs an op: shapes, layout, kernel of the inputs' device, record on the tapes of this thread.
template <class Op>
Tensors apply_all(const Op& op, Tensors in) {
  static_assert(detail::Differentiable<Op> || !detail::differentiable<Op>(), "an op needs a vjp written in ops");
  const DeviceKind device = detail::common_device(Op::name, in);

  // Layouts come before local shapes: what does not fit is then refused in the same words on all ranks.
  bool distributed = false;
  for (const auto& x : in) distributed = distributed || (x && x.layout());
  LayoutPtr layout;
  if (distributed) {
    if constexpr (requires { op.layout(Inputs(in)); }) layout = op.layout(in);
    else layout = detail::refuse_layout(Op::name, in);
  }
  const Types types = op.infer(in);
  const detail::OpScope running(Op::name);
  const bool constant = !detail::differentiable<Op>() || detail::all_constant(in);
  const bool record = !constant && Tape::recording();
  if (!record && !constant) Tape::read_unrecorded(in);
  const detail::RecordedCall scope(detail::communicates<Op>() && record);
  const bool counting = detail::counting_costs();
  const double start = counting ? detail::seconds_now() : 0;

  Tensors out;
  out.reserve(types.size());
  if constexpr (requires { op.view(Inputs(in)); }) {
    out.push_back(op.view(in));
  } else {
    if constexpr (requires { op.reuse(Inputs(in)); })
      if (auto y = op.reuse(in)) out.push_back(std::move(y));
    for (auto i = out.size(); i < types.size(); ++i)
      out.push_back(Tensor::with_room(types[i], device, HaloRoom::bytes(types[i], layout)));
    if constexpr (detail::communicates<Op>()) {
      op.run(Inputs(in), Outputs(out));
    } else {
      switch (device) {
        case DeviceKind::cpu: detail::run_on_cpu(op, in, out); break;
        case DeviceKind::cuda:
          if constexpr (requires { op.run(Cuda{}, Inputs(in), Outputs(out)); }) op.run(Cuda{}, in, out);
          else detail::refuse_cuda(Op::name);
          break;
        case DeviceKind::dry: break;
      }
    }
  }
  if (counting) detail::count_cost(Op::name, cost_of(op, in, out), detail::seconds_now() - start, in, out);

  detail::finish_outputs(out, constant, layout);
  if constexpr (detail::differentiable<Op>()) {
    if (record) {
      StartReduction start_reduction;
      int equal_on = 0;
      if constexpr (requires { op.equal_on(); }) equal_on = op.equal_on();
      if constexpr (requires { op.start_reduction(in[0]); })
        start_reduction = {.start = [op](const Tensor& cotangent) { return op.start_reduction(cotangent); },
                           .over = op.reduces_over()};
      Tape::record({.name = Op::name,
                    .communicates = detail::communicates<Op>(),
                    .keeps_inputs = detail::keeps_inputs<Op>(),
                    .keeps_outputs = detail::keeps_outputs(op),
                    .inputs = in,
                    .outputs = out,
                    .vjp = [op](const Replay& at, Inputs cotangents) { return op.vjp(at, cotangents); },
                    .start_reduction = std::move(start_reduction),
                    .equal_on = equal_on});
    }
  }
  return out;
}

template <class Op>
Tensor apply(const Op& op, Tensors in) {
  return std::move(apply_all(op, std::move(in)).front());
}

}  // namespace mpigrad
