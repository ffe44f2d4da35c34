// Your own op, with a kernel and a derivative: y = x exp(-x^2).
//
//   mpiexec -n 2 build/examples/own_op
//
// prints the mean, the same on any number of ranks, and the errors of the derivatives: of first order against differences of y,
// "exactly" vjp against jvp, and of second order against differences of the first.
//
// framework/engine/op.h lists further members that an op may have. The vjp is written in ops, so that it can be differentiated
// again; `layout` makes the op work on distributed tensors: y is split like x.
//
// Programs compiled with -DOWN_OP_ON_GPU also have a kernel for GPUs (`--device cuda`), in own_op_kernels.cu.

#include <mpigrad/mpigrad.h>
using namespace mpigrad;

#ifdef OWN_OP_ON_GPU
#include "ops/kernel/gpu_tensors.h"
template <class T>
void wavelet_on_gpu(std::int64_t n, const T* x, T* y, cuda::Stream stream);
#endif

struct Wavelet {
  static constexpr OpTraits traits() { return {.name = "wavelet", .keeps_inputs = 1}; }  // bit 0: the vjp reads input 0
  Types infer(Inputs in) const {
    require(is_floating(in[0].dtype()), "[wavelet] takes real numbers, not {}", in[0]);
    return {in[0].type()};
  }
  LayoutPtr layout(Inputs in) const { return elementwise_layout(traits().name, in, Elementwise::nonlinear); }
  void run(Cpu, Inputs in, Outputs out) const {
    visit_floating(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      const T* x = in[0].data<T>();
      T* y = out[0].mutable_data<T>();
      for (std::int64_t i = 0; i < in[0].elements(); ++i) y[i] = x[i] * std::exp(-x[i] * x[i]);
    });
  }
#ifdef OWN_OP_ON_GPU
  void run(Cuda, Inputs in, Outputs out) const {
    visit_floating(in[0].dtype(), [&](auto zero) {
      using T = decltype(zero);
      wavelet_on_gpu(in[0].elements(), ops::read<T>(in[0]), ops::written<T>(out[0]), cuda::compute_stream());
    });
  }
#endif
  Tensors vjp(const Replay& at, Inputs cotangents) const {
    const Tensor& x = at.input(0);
    return {cotangents[0] * (1 - 2 * square(x)) * exp(-square(x))};
  }
};
Tensor wavelet(const Tensor& x) { return apply(Wavelet{}, {x}); }

int main(int argc, char** argv) {
  return run(argc, argv, [](Session& session) {
    const auto slabs = activation_layout(session.grid({.depth = session.ranks()}), {1, 8, 4, 4, 1});
    const Tensor x = random_normal(slabs->global, {.key = 1}, 0, 1, DType::float64, slabs);  // each rank has only its planes
    const double value = total(mean(wavelet(x)));
    const auto f = [](const Tensors& inputs) { return Tensors{wavelet(inputs[0])}; };
    const auto report = adjoint_check(f, {x.without_layout()}, session.world());
    require(report.first < 1e-6, "[own_op] the derivative is wrong by {}", report.first);
    fmt::print("rank {}: mean {:.12f}; first order off by {:.0e}, exactly {:.0e}, second {:.0e}\n", session.rank(), value,
               report.first, report.exact, report.second);
  });
}
