#include "ops/complex/complex.h"
#include "ops/kernel/absent.h"

#ifdef MPIGRAD_HAS_KERNELS
#include "ops/complex/complex_cuda_kernels.h"
#include "ops/complex/complex_functions.h"
#include "ops/kernel/gpu_tensors.h"

namespace mpigrad::ops {
namespace {

template <class F>
void visit_parts_on_gpu(const Tensor& x, F&& f) {
  visit_floating(real_type(x.dtype()), f);
}

template <class A, class R, class F>
void map_on_gpu(const Tensor& a, Tensor& y, const F& f) {
  cuda::map_complex(f, y.elements(), read<A>(a), written<R>(y), cuda::compute_stream());
}
template <class A, class B, class R, class F>
void map_on_gpu(const Tensor& a, const Tensor& b, Tensor& y, const F& f) {
  const auto& shape = y.shape();
  const StridedWalk<2> walk(walk_of(shape, broadcast_strides(a.shape(), shape), broadcast_strides(b.shape(), shape)).collapsed());
  cuda::map_complex(f, walk, y.elements(), read<A>(a), read<B>(b), written<R>(y), cuda::compute_stream());
}

}  // namespace

void ComplexJoin::run(Cuda, Inputs in, Outputs out) const {
  visit_parts_on_gpu(out[0], [&](auto zero) {
    using T = decltype(zero);
    map_on_gpu<T, T, scalar::Complex<T>>(in[0], in[1], out[0], scalar::ComplexJoin{});
  });
}
void ComplexPart::run(Cuda, Inputs in, Outputs out) const {
  visit_parts_on_gpu(in[0], [&](auto zero) {
    using T = decltype(zero);
    map_on_gpu<scalar::Complex<T>, T>(in[0], out[0], scalar::ComplexPart{imaginary});
  });
}
void ComplexConj::run(Cuda, Inputs in, Outputs out) const {
  visit_parts_on_gpu(in[0], [&](auto zero) {
    using C = scalar::Complex<decltype(zero)>;
    map_on_gpu<C, C>(in[0], out[0], scalar::ComplexConj{});
  });
}
void ComplexAbs::run(Cuda, Inputs in, Outputs out) const {
  visit_parts_on_gpu(in[0], [&](auto zero) {
    using T = decltype(zero);
    map_on_gpu<scalar::Complex<T>, T>(in[0], out[0], scalar::ComplexAbs{});
  });
}
void ComplexProduct::run(Cuda, Inputs in, Outputs out) const {
  visit_parts_on_gpu(in[0], [&](auto zero) {
    using C = scalar::Complex<decltype(zero)>;
    map_on_gpu<C, C, C>(in[0], in[1], out[0], scalar::ComplexProduct{conjugate});
  });
}
void ComplexScale::run(Cuda, Inputs in, Outputs out) const {
  visit_parts_on_gpu(in[0], [&](auto zero) {
    using T = decltype(zero);
    map_on_gpu<scalar::Complex<T>, T, scalar::Complex<T>>(in[0], in[1], out[0], scalar::ComplexScale{});
  });
}
void ComplexQuotient::run(Cuda, Inputs in, Outputs out) const {
  visit_parts_on_gpu(in[0], [&](auto zero) {
    using C = scalar::Complex<decltype(zero)>;
    map_on_gpu<C, C, C>(in[0], in[1], out[0], scalar::ComplexQuotient{conjugate});
  });
}

}  // namespace mpigrad::ops
#else
namespace mpigrad::ops {

MPIGRAD_ABSENT(ComplexJoin)
MPIGRAD_ABSENT(ComplexPart)
MPIGRAD_ABSENT(ComplexConj)
MPIGRAD_ABSENT(ComplexAbs)
MPIGRAD_ABSENT(ComplexProduct)
MPIGRAD_ABSENT(ComplexScale)
MPIGRAD_ABSENT(ComplexQuotient)

}  // namespace mpigrad::ops
#endif
