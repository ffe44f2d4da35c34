// Convolution: calls the kernels on tensors.

#include <type_traits>

#include "framework/engine/half_operands.h"
#include "ops/conv/conv.h"
#include "ops/conv/conv_bfloat16.h"
#include "ops/conv/conv_kernels.h"
#include "ops/conv/conv_problem.h"

namespace mpigrad::ops {
namespace {

// Calls f(zero of the type, inputs, outputs). bfloat16 is offered to `native` first, with a zero of the weight's type. Otherwise
// 16-bit operands are converted to float32, and the result is rounded once; there float32 weights are used as they are.
template <class Native, class F>
void run_by_type(Inputs in, Outputs out, const Tensor& weight, const Native& native, const F& f) {
  const DType type = in[0].dtype();
  if (!is_half(type)) return visit_floating(type, [&](auto zero) { f(zero, in, out); });
  if (type == DType::bfloat16 && (weight.dtype() == DType::float32 ? native(float{}) : native(BFloat16{}))) return;
  const Tensors wide = detail::widened(in);
  Tensors results = detail::wide_outputs(out);
  f(float{}, wide, results);
  detail::narrow(results, out);
}

template <class T>
const T* elements(const Tensor& x) {
  return x ? x.data<T>() : nullptr;
}

void run_forward(const kernel::ConvProblem& p, scalar::Fused fused, Inputs in, Outputs out) {
  const Tensor bias = in.size() > 2 ? in[2] : Tensor();
  run_by_type(
      in, out, in[1],
      [&](auto of_weight) {
        using W = decltype(of_weight);
        return cpu::native::conv_forward(p, in[0].data<BFloat16>(), in[1].data<W>(), out[0].mutable_data<BFloat16>(),
                                         {.bias = elements<BFloat16>(bias), .fused = fused});
      },
      [&](auto zero, Inputs x, Outputs y) {
        using T = decltype(zero);
        const cpu::Epilogue e{.bias = x.size() > 2 ? elements<T>(x[2]) : nullptr, .fused = fused};
        if constexpr (std::is_same_v<T, float>)
          if (cpu::small::suits(p)) return cpu::small::conv_forward(p, x[0].data<T>(), x[1].data<T>(), y[0].mutable_data<T>(), e);
        cpu::conv_forward(p, x[0].data<T>(), x[1].data<T>(), y[0].mutable_data<T>(), e);
      });
}

}  // namespace

void Conv::run(Cpu, Inputs in, Outputs out) const { run_forward(problem_of(a, in[0], in[1].shape(), out[0]), {}, in, out); }

void ConvBiasActivation::run(Cpu, Inputs in, Outputs out) const {
  run_forward(problem_of(a, in[0], in[1].shape(), out[0]), fused, in, out);
}

void ConvData::run(Cpu, Inputs in, Outputs out) const {
  const auto p = problem_of(a, out[0], in[1].shape(), in[0]);
  run_by_type(
      in, out, in[1],
      [&](auto of_weight) {
        using W = decltype(of_weight);
        return cpu::native::conv_data(p, in[0].data<BFloat16>(), in[1].data<W>(), out[0].mutable_data<BFloat16>());
      },
      [&](auto zero, Inputs x, Outputs y) {
        using T = decltype(zero);
        if constexpr (std::is_same_v<T, float>)
          if (cpu::small::suits(p)) return cpu::small::conv_data(p, x[0].data<T>(), x[1].data<T>(), y[0].mutable_data<T>());
        cpu::conv_data(p, x[0].data<T>(), x[1].data<T>(), y[0].mutable_data<T>());
      });
}

void ConvWeight::run(Cpu, Inputs in, Outputs out) const {
  const auto p = problem_of(a, in[0], out[0].shape(), in[1]);
  run_by_type(
      in, out, out[0],
      [&](auto of_weight) {
        using W = decltype(of_weight);
        return cpu::native::conv_weight(p, in[0].data<BFloat16>(), in[1].data<BFloat16>(), out[0].mutable_data<W>());
      },
      [&](auto zero, Inputs x, Outputs y) {
        using T = decltype(zero);
        if constexpr (std::is_same_v<T, float>)
          if (cpu::small::suits(p)) return cpu::small::conv_weight(p, x[0].data<T>(), x[1].data<T>(), y[0].mutable_data<T>());
        cpu::conv_weight(p, x[0].data<T>(), x[1].data<T>(), y[0].mutable_data<T>());
      });
}

}  // namespace mpigrad::ops
