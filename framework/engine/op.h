#ifndef MPIGRAD_FRAMEWORK_ENGINE_OP_H
#define MPIGRAD_FRAMEWORK_ENGINE_OP_H
// Ops. An op is one struct: its attributes, and
//
//   static constexpr OpTraits traits() { return {.name = "cube", .keeps_inputs = 1}; }
//   Types infer(Inputs in) const                  types of the outputs; an Error with rule and operands if the inputs do not fit
//   void run(Cpu, Inputs in, Outputs out) const   the kernel, one per device
//   void run(Cuda, Inputs in, Outputs out) const
//   Tensors vjp(const Replay& at, Inputs cotangents) const   cotangents of the inputs, written in ops only
//
// and, where the default does not fit,
//
//   Cost cost(Inputs in, Outputs out) const       floating-point operations and bytes; default: one pass over all operands
//   LayoutPtr layout(Inputs in) const             layout of the output for distributed inputs; default: an Error
//   Tensor view(Inputs in) const                  instead of run: the output shares the input's storage
//   Tensor reuse(Inputs in) const                 in addition to run: memory for the output, or none; see sole_owner
//   unsigned kept_inputs() const, kept_outputs() const    keeps_inputs, keeps_outputs, where they depend on the attributes
//   int equal_on() const                          on how many ranks the output is equal without a replicated layout
//   double divisor() const                        for ops that scale by a number or add one: the number by which the op divides,
//                                                 infinity if it multiplies, 1 if it only adds a number or changes the sign;
//                                                 used only for the warning about equal objectives (detail::EqualValues::note)
//   auto start_reduction(const Tensor& cotangent) const   starts the vjp of a parameter's replication without waiting, and
//   LayoutPtr reduced_rows() const                optional: the rows in which the parameter is stored (StartReduction::rows)
//   std::uint64_t reduces_over() const            identifies the group of ranks that it sums over (Communicator::number())
//
// traits() is a function, so that a struct inside a function can be an op. A misspelt trait does not compile.

// Kernels: the library's ops declare run(Cpu, ...) and run(Cuda, ...). run(Cuda, ...) is defined in *_cuda.cpp; if it is missing,
// linking fails. In builds without CUDA the code after `#else` in these files defines stubs, so that linking succeeds; they are
// never called, because no tensor is on a GPU. An op of a user that does not declare run(Cuda, ...) gives an Error on a GPU.

#include <concepts>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/op_scope.h"
#include "framework/engine/tape.h"
#include "framework/tensor/tensor.h"

namespace mpigrad {

using Types = std::vector<TensorType>;
using Tensors = std::vector<Tensor>;
using Inputs = std::span<const Tensor>;
using Outputs = std::span<Tensor>;

struct Cost {
  double flops = 0;
  double bytes = 0;
};

// Properties that all ops of one type share.
struct OpTraits {
  std::string_view name;  // as it appears in errors and on the tape
  // Bit i: the vjp reads the elements of input (output) i.
  unsigned keeps_inputs = 0, keeps_outputs = 0;
  bool communicates = false;   // takes part in every replay; `run(Inputs, Outputs)` serves all devices
  bool differentiable = true;  // false: outputs are constants (comparisons, indices), and there is no vjp
  // True: `run` on the CPU accepts bfloat16 and float16. False: it gets 16-bit elements converted to float32, and its results are
  // rounded once.
  bool takes_half = false;
  // False: complex tensors are refused with an Error that names the op. True: the op takes them as it takes real ones; its vjp
  // gets and returns complex cotangents dL/d(Re z) + i dL/d(Im z).
  bool takes_complex = false;
};

namespace detail {

template <class Op>
concept Differentiable = requires(const Op op, const Replay& at, Inputs cotangents) {
  { op.vjp(at, cotangents) } -> std::same_as<Tensors>;
};
template <class Op>
concept HasTraits = requires {
  { Op::traits() } -> std::same_as<OpTraits>;
};
// True if a member that belongs in traits() is declared outside of it, where it would have no effect.
template <class Op>
concept HasStrayTraits = requires {
  Op::keeps_inputs;
}
|| requires { Op::keeps_outputs; }
|| requires { Op::communicates; }
|| requires { Op::differentiable; }
|| requires { Op::takes_half; }
|| requires { Op::takes_complex; };

LayoutPtr refuse_layout(std::string_view op, Inputs in);
[[noreturn]] void refuse_cuda(std::string_view op);
bool counting_costs();
void count_cost(std::string_view op, const Cost& cost, double seconds, Inputs in, Outputs out);
double seconds_now();

// Shows in profiles the time to start reductions and gathers of parameters, and to wait for them, which are not ops. The time of
// an op that waits for them does not include it.
class ReductionClock {
 public:
  static constexpr std::string_view wait = "wait for a reduction";
  explicit ReductionClock(std::string_view what)
      : what_(what), counting_(counting_costs()), start_(counting_ ? seconds_now() : 0) {}
  ~ReductionClock() {
    if (counting_) count_cost(what_, {}, seconds_now() - start_, {}, {});
  }
  ReductionClock(const ReductionClock&) = delete;
  ReductionClock& operator=(const ReductionClock&) = delete;

 private:
  std::string_view what_;
  bool counting_;
  double start_;
};

// Whether the communication call running on this thread is recorded: checks between ranks compare it, because a rank that does
// not record a call which the others record will be missing in the replay.
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

// Whether a cotangent that a vjp was given may be overwritten: replay() releases its own reference, so a single reference means
// that there is no later reader. Call it before copying the handle.
inline bool sole_owner(const Tensor& cotangent) {
  return cotangent.storage() && cotangent.storage().use_count() == 1 && !cotangent.storage()->foreign();
}

namespace detail {

// The functions of an op that apply() needs, with the op's type erased: apply_all() is compiled once for all ops, and a file that
// defines an op compiles quickly. Null where the op does not define the function.
struct OpFunctions {
  OpTraits traits;
  Types (*infer)(const void* op, Inputs in) = nullptr;
  LayoutPtr (*layout)(const void* op, Inputs in) = nullptr;
  Tensor (*view)(const void* op, Inputs in) = nullptr;
  Tensor (*reuse)(const void* op, Inputs in) = nullptr;
  void (*run)(const void* op, Inputs in, Outputs out) = nullptr;  // for ops that communicate
  void (*run_on_cpu)(const void* op, Inputs in, Outputs out) = nullptr;
  void (*run_on_cuda)(const void* op, Inputs in, Outputs out) = nullptr;
  Cost (*cost)(const void* op, Inputs in, Outputs out) = nullptr;
  unsigned (*kept_inputs)(const void* op) = nullptr;
  unsigned (*kept_outputs)(const void* op) = nullptr;
  int (*equal_on)(const void* op) = nullptr;
  double (*divisor)(const void* op) = nullptr;
  Vjp (*vjp)(const void* op) = nullptr;
  StartReduction (*start_reduction)(const void* op) = nullptr;
};

template <class Op>
constexpr OpFunctions functions_of() {
  static_assert(HasTraits<Op>, "an op has `static constexpr OpTraits traits()`");
  static_assert(!HasStrayTraits<Op>, "what OpTraits has belongs in the op's traits()");
  OpFunctions f{.traits = Op::traits()};
  static_assert(Differentiable<Op> || !Op::traits().differentiable, "an op needs a vjp written in ops");
  f.infer = [](const void* op, Inputs in) { return static_cast<const Op*>(op)->infer(in); };
  if constexpr (requires(const Op op, Inputs in) { op.layout(in); })
    f.layout = [](const void* op, Inputs in) -> LayoutPtr { return static_cast<const Op*>(op)->layout(in); };
  if constexpr (requires(const Op op, Inputs in) { op.view(in); }) {
    f.view = [](const void* op, Inputs in) { return static_cast<const Op*>(op)->view(in); };
  } else {
    if constexpr (requires(const Op op, Inputs in) { op.reuse(in); })
      f.reuse = [](const void* op, Inputs in) { return static_cast<const Op*>(op)->reuse(in); };
    if constexpr (Op::traits().communicates) {
      f.run = [](const void* op, Inputs in, Outputs out) { static_cast<const Op*>(op)->run(in, out); };
    } else {
      f.run_on_cpu = [](const void* op, Inputs in, Outputs out) { static_cast<const Op*>(op)->run(Cpu{}, in, out); };
      if constexpr (requires(const Op op, Inputs in, Outputs out) { op.run(Cuda{}, in, out); })
        f.run_on_cuda = [](const void* op, Inputs in, Outputs out) { static_cast<const Op*>(op)->run(Cuda{}, in, out); };
    }
  }
  if constexpr (requires(const Op op, Inputs in, Outputs out) { op.cost(in, out); })
    f.cost = [](const void* op, Inputs in, Outputs out) -> Cost { return static_cast<const Op*>(op)->cost(in, out); };
  if constexpr (requires(const Op op) { op.kept_inputs(); })
    f.kept_inputs = [](const void* op) -> unsigned { return static_cast<const Op*>(op)->kept_inputs(); };
  if constexpr (requires(const Op op) { op.kept_outputs(); })
    f.kept_outputs = [](const void* op) -> unsigned { return static_cast<const Op*>(op)->kept_outputs(); };
  if constexpr (requires(const Op op) { op.equal_on(); })
    f.equal_on = [](const void* op) { return static_cast<const Op*>(op)->equal_on(); };
  if constexpr (requires(const Op op) { op.divisor(); })
    f.divisor = [](const void* op) -> double { return static_cast<const Op*>(op)->divisor(); };
  if constexpr (Differentiable<Op>)
    f.vjp = [](const void* op) -> Vjp {
      return [copy = *static_cast<const Op*>(op)](const Replay& at, Inputs cotangents) { return copy.vjp(at, cotangents); };
    };
  if constexpr (requires(const Op op, const Tensor& cotangent) { op.start_reduction(cotangent); })
    f.start_reduction = [](const void* op) {
      const Op& self = *static_cast<const Op*>(op);
      StartReduction made{.start = [self](const Tensor& cotangent) { return self.start_reduction(cotangent); },
                          .over = self.reduces_over()};
      if constexpr (requires { self.reduced_rows(); }) made.rows = self.reduced_rows();
      return made;
    };
  return f;
}

template <class Op>
inline constexpr OpFunctions functions = functions_of<Op>();

Tensors apply_all(const void* op, const OpFunctions& functions, Tensors in);
// Calls GridShape::bring_together() if the operands are on different grids or devices. A function that compares the layouts of
// operands before it runs an op calls this first.
void bring_together(std::string_view op, Tensors& in);
// Runs only the kernel, into existing outputs.
void run_again(const void* op, const OpFunctions& functions, Inputs in, Outputs out);

}  // namespace detail

// Runs an op: shapes, layout, kernel of the inputs' device, record on the tapes of this thread.
template <class Op>
Tensors apply_all(const Op& op, Tensors in) {
  return detail::apply_all(&op, detail::functions<Op>, std::move(in));
}

// Runs an op as apply_all() does, and returns its first output.
template <class Op>
Tensor apply(const Op& op, Tensors in) {
  return std::move(apply_all(op, std::move(in)).front());
}

// If a tape records: notes that `op` computed y from `in`, so that the memory of y may be dropped and computed again
// (ops/recompute.h). For ops that are cheap compared with others, and whose inputs the tape keeps anyway.
template <class Op>
void remember(const Op& op, const Tensors& in, const Tensor& y) {
  if (!y.storage() || !Tape::recording()) return;
  Tensors parts;
  for (const auto& x : in) parts.push_back(x.without_layout());
  const auto place = y.offset();
  y.storage()->set_recipe({.begin = place,
                           .end = place + y.bytes(),
                           .compute = [op, parts, type = y.type(), place](const std::shared_ptr<Storage>& storage) {
                             Tensor again(type, storage, place);
                             detail::run_again(&op, detail::functions<Op>, parts, {&again, 1});
                           }});
}

}  // namespace mpigrad

#endif
