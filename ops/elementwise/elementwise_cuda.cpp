#include "ops/elementwise/activation_ops.h"
#include "ops/elementwise/scalar.h"
#include "ops/kernel/absent.h"

#ifdef MPIGRAD_HAS_KERNELS
#include "ops/elementwise/broadcast.h"
#include "ops/elementwise/elementwise_cuda_kernels.h"
#include "ops/kernel/gpu_tensors.h"

namespace mpigrad::ops {

namespace {

StridedWalk<2> broadcast_walk(const Tensor& a, const Tensor& b, const Shape& shape) {
  return StridedWalk<2>(walk_of(shape, broadcast_strides(a.shape(), shape), broadcast_strides(b.shape(), shape)).collapsed());
}

}  // namespace

template <class F>
void Unary<F>::run(Cuda, Inputs in, Outputs out) const {
  visit_any_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const typename F::Scalar& function = f;
    cuda::unary(function, in[0].elements(), read<T>(in[0]), written<T>(out[0]), cuda::compute_stream());
  });
}

template <class F>
void Binary<F>::run(Cuda, Inputs in, Outputs out) const {
  const typename F::Scalar& function = f;
  const auto n = out[0].elements();
  visit_any_arithmetic(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *a = read<T>(in[0]), *b = read<T>(in[1]);
    T* y = written<T>(out[0]);
    if constexpr (is_floating(dtype_of<T>()) && takes<F, T>)
      if (in[0].shape() == in[1].shape()) return cuda::binary(function, n, a, b, y, cuda::compute_stream());
    if constexpr (takes<F, T> && !requires { F::one_shape; })
      cuda::binary_strided(function, broadcast_walk(in[0], in[1], out[0].shape()), n, a, b, y, cuda::compute_stream());
  });
}

template <class F>
void Compare<F>::run(Cuda, Inputs in, Outputs out) const {
  visit_any_arithmetic(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::compare(typename F::Scalar{}, broadcast_walk(in[0], in[1], out[0].shape()), out[0].elements(), read<T>(in[0]),
                  read<T>(in[1]), written<bool>(out[0]), cuda::compute_stream());
  });
}

void Where::run(Cuda, Inputs in, Outputs out) const {
  const auto& shape = out[0].shape();
  const StridedWalk<3> walk(walk_of(shape, broadcast_strides(in[0].shape(), shape), broadcast_strides(in[1].shape(), shape),
                                    broadcast_strides(in[2].shape(), shape))
                                .collapsed());
  visit_width(in[1].dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::where(walk, out[0].elements(), read<bool>(in[0]), read<T>(in[1]), read<T>(in[2]), written<T>(out[0]),
                cuda::compute_stream());
  });
}

void Cast::run(Cuda, Inputs in, Outputs out) const {
  visit_any(in[0].dtype(), [&](auto from) {
    using From = decltype(from);
    visit_any(to, [&](auto zero) {
      using To = decltype(zero);
      cuda::cast(in[0].elements(), read<From>(in[0]), written<To>(out[0]), cuda::compute_stream());
    });
  });
}

}  // namespace mpigrad::ops
#else
namespace mpigrad::ops {

// Macros that end without semicolons.
// clang-format off
template <class F> MPIGRAD_ABSENT(Unary<F>)
template <class F> MPIGRAD_ABSENT(Binary<F>)
template <class F> MPIGRAD_ABSENT(Compare<F>)
MPIGRAD_ABSENT(Where)
MPIGRAD_ABSENT(Cast)
// clang-format on

}  // namespace mpigrad::ops
#endif

namespace mpigrad::ops {

#define MPIGRAD_MAKE(F, ...) template void Unary<F>::run(Cuda, Inputs, Outputs) const;
MPIGRAD_UNARY_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
#define MPIGRAD_MAKE(F, ...) template void Binary<F>::run(Cuda, Inputs, Outputs) const;
MPIGRAD_BINARY_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
#define MPIGRAD_MAKE(F, ...) template void Compare<F>::run(Cuda, Inputs, Outputs) const;
MPIGRAD_COMPARE_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

}  // namespace mpigrad::ops
