// Fourier transforms on GPUs: lines are packed one after the other, transformed by cuFFT in one batch, and unpacked.

#include "ops/fft/fft.h"
#include "ops/kernel/absent.h"

#ifdef MPIGRAD_HAS_CUFFT
#include "ops/backends/cufft/cufft_lines.h"
#include "ops/fft/fft_cuda_kernels.h"
#include "ops/fft/lines.h"
#include "ops/kernel/gpu_tensors.h"

namespace mpigrad::ops {
namespace {

// Between [outer, n, inner] and [outer, inner, n].
void move_lines(std::int64_t outer, std::int64_t n, std::int64_t inner, const Tensor& from, Tensor& to, bool pack) {
  StridedArrays<2> walk;
  const std::int64_t line = n * inner;
  walk.add(outer, {line, line});
  if (pack) walk.add(inner, {n, 1}), walk.add(n, {1, inner});
  else walk.add(n, {inner, 1}), walk.add(inner, {1, n});
  cuda::copy_strided(to.raw(), from.raw(), size_of(from.dtype()), walk, cuda::compute_stream());
}

template <class T>
void transform_on_gpu(const LinePass& pass, const Tensor& x, Tensor& y) {
  const std::int64_t lines = pass.outer * pass.inner;
  const std::int64_t from_n = pass.kind == Lines::half_to_real ? pass.half() : pass.n;
  const std::int64_t to_n = pass.kind == Lines::real_to_half ? pass.half() : pass.n;
  // half_to_real overwrites its input.
  const bool packs = pass.inner > 1 || pass.kind == Lines::half_to_real;
  Tensor in = x, out = y;
  if (packs) in = scratch(lines * from_n, x.dtype()), move_lines(pass.outer, from_n, pass.inner, x, in, true);
  if (pass.inner > 1) out = scratch(lines * to_n, y.dtype());
  const auto stream = cuda::compute_stream();
  if (pass.kind == Lines::half_to_real)
    cuda::weight_half_lines(lines, pass.n, static_cast<T>(pass.between), true, written<T>(in), stream);
  cuda::transform_lines<T>(pass.kind, pass.n, lines, written<T>(in), written<T>(out));
  if (pass.kind == Lines::real_to_half && pass.between != 1)
    cuda::weight_half_lines(lines, pass.n, static_cast<T>(pass.between), false, written<T>(out), stream);
  if (pass.scale != 1)
    cuda::scale_numbers(lines * to_n * parts_of(y.dtype()), static_cast<T>(pass.scale), written<T>(out), stream);
  if (pass.inner > 1) move_lines(pass.outer, to_n, pass.inner, out, y, false);
}

void run_passes_on_gpu(const FourierPasses& passes, const Tensor& in, Tensor& out) {
  for_each_pass(passes, in, out, [](const LinePass& pass, const Tensor& x, Tensor& y) {
    visit_floating(real_type(x.dtype()), [&](auto zero) { transform_on_gpu<decltype(zero)>(pass, x, y); });
  });
}

}  // namespace

void FourierSum::run(Cuda, Inputs in, Outputs out) const { run_passes_on_gpu(passes_of(*this), in[0], out[0]); }
void RealFourierSum::run(Cuda, Inputs in, Outputs out) const { run_passes_on_gpu(passes_of(*this, in[0]), in[0], out[0]); }
void RealFourierInverse::run(Cuda, Inputs in, Outputs out) const { run_passes_on_gpu(passes_of(*this), in[0], out[0]); }

}  // namespace mpigrad::ops
#else
namespace mpigrad::ops {

MPIGRAD_ABSENT(FourierSum)
MPIGRAD_ABSENT(RealFourierSum)
MPIGRAD_ABSENT(RealFourierInverse)

}  // namespace mpigrad::ops
#endif
