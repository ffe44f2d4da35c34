// The functions of libcufft that the library uses (ops/backends/cufft/vendor_cufft.h), on host memory, as direct sums. Where
// cuFFT promises nothing, this differs from FFTW: imaginary parts that no real line has enter the result of complex-to-real
// transforms, which also overwrite their input.

#include <cufft.h>

#include <cmath>
#include <complex>
#include <map>
#include <mutex>
#include <numbers>
#include <vector>

#include "tests/emulation/vendor/stream.h"

namespace mpigrad::emulation::vendor {
namespace {

struct FourierPlan {
  cufftType type = CUFFT_C2C;
  std::int64_t n = 0, lines = 0;
  cudaStream_t stream = nullptr;
};

std::mutex plans_mutex;
std::map<cufftHandle, FourierPlan>& plans() {
  static auto& all = *new std::map<cufftHandle, FourierPlan>;
  return all;
}

template <class T>
std::complex<T> sum_at(const std::vector<std::complex<T>>& x, std::int64_t k, int sign) {
  const auto n = static_cast<std::int64_t>(x.size());
  std::complex<double> sum = 0;
  for (std::int64_t j = 0; j < n; ++j)
    sum += std::complex<double>(x[static_cast<std::size_t>(j)]) *
           std::polar(1.0, sign * 2 * std::numbers::pi * static_cast<double>(j * k % n) / static_cast<double>(n));
  return std::complex<T>(sum);
}

// A line of n numbers, as complex ones, and where it goes.
template <class T>
void transform_line(cufftType type, int sign, std::int64_t n, T* in, T* out) {
  std::vector<std::complex<T>> x(static_cast<std::size_t>(n));
  const std::int64_t half = n / 2 + 1;
  const bool from_real = type == CUFFT_R2C || type == CUFFT_D2Z, to_real = type == CUFFT_C2R || type == CUFFT_Z2D;
  for (std::int64_t k = 0; k < n; ++k) {
    auto& value = x[static_cast<std::size_t>(k)];
    if (from_real) value = in[k];
    else if (!to_real || k < half) value = {in[2 * k], in[2 * k + 1]};
    else value = {in[2 * (n - k)], -in[2 * (n - k) + 1]};
  }
  for (std::int64_t k = 0; k < (from_real ? half : n); ++k) {
    const auto y = sum_at(x, k, from_real ? -1 : to_real ? 1 : sign);
    if (to_real) out[k] = y.real() + y.imag();
    else out[2 * k] = y.real(), out[2 * k + 1] = y.imag();
  }
  if (to_real)
    for (std::int64_t k = 0; k < 2 * half; ++k) in[k] = static_cast<T>(NAN);
}

template <class T>
cufftResult execute(cufftHandle handle, std::initializer_list<cufftType> types, int sign, void* in, void* out) {
  FourierPlan plan;
  {
    const std::lock_guard lock(plans_mutex);
    const auto found = plans().find(handle);
    if (found == plans().end()) return CUFFT_INVALID_PLAN;
    plan = found->second;
  }
  bool fits = false;
  for (const auto type : types) fits = fits || type == plan.type;
  if (!fits || !in || !out) return CUFFT_INVALID_VALUE;
  const std::int64_t half = plan.n / 2 + 1;
  const std::int64_t from = plan.type == CUFFT_R2C || plan.type == CUFFT_D2Z   ? plan.n
                            : plan.type == CUFFT_C2R || plan.type == CUFFT_Z2D ? 2 * half
                                                                               : 2 * plan.n;
  const std::int64_t to = plan.type == CUFFT_R2C || plan.type == CUFFT_D2Z   ? 2 * half
                          : plan.type == CUFFT_C2R || plan.type == CUFFT_Z2D ? plan.n
                                                                             : 2 * plan.n;
  const auto bytes = [&](std::int64_t numbers) { return plan.lines * numbers * static_cast<std::int64_t>(sizeof(T)); };
  if (!unreachable(in, bytes(from)).empty() || !unreachable(out, bytes(to)).empty()) return CUFFT_INVALID_VALUE;
  enqueue(plan.stream, [=] {
    for (std::int64_t l = 0; l < plan.lines; ++l)
      transform_line(plan.type, sign, plan.n, static_cast<T*>(in) + l * from, static_cast<T*>(out) + l * to);
  });
  return CUFFT_SUCCESS;
}

}  // namespace
}  // namespace mpigrad::emulation::vendor

using namespace mpigrad::emulation::vendor;

extern "C" {

cufftResult cufftCreate(cufftHandle* handle) {
  static cufftHandle next = 1;
  const std::lock_guard lock(plans_mutex);
  *handle = next++;
  plans()[*handle] = {};
  return CUFFT_SUCCESS;
}
cufftResult cufftMakePlanMany64(cufftHandle handle, int rank, long long* n, long long* inembed, long long, long long,
                                long long* onembed, long long, long long, cufftType type, long long batch, size_t* bytes) {
  const std::lock_guard lock(plans_mutex);
  const auto found = plans().find(handle);
  if (found == plans().end()) return CUFFT_INVALID_PLAN;
  if (rank != 1 || *n < 1 || batch < 1 || inembed || onembed) return CUFFT_INVALID_VALUE;
  found->second = {type, *n, batch, nullptr};
  *bytes = 0;
  return CUFFT_SUCCESS;
}
cufftResult cufftDestroy(cufftHandle handle) {
  const std::lock_guard lock(plans_mutex);
  return plans().erase(handle) == 1 ? CUFFT_SUCCESS : CUFFT_INVALID_PLAN;
}
cufftResult cufftSetStream(cufftHandle handle, cudaStream_t stream) {
  const std::lock_guard lock(plans_mutex);
  const auto found = plans().find(handle);
  if (found == plans().end()) return CUFFT_INVALID_PLAN;
  found->second.stream = stream;
  return CUFFT_SUCCESS;
}
cufftResult cufftExecC2C(cufftHandle plan, cufftComplex* in, cufftComplex* out, int direction) {
  return execute<float>(plan, {CUFFT_C2C}, direction, in, out);
}
cufftResult cufftExecZ2Z(cufftHandle plan, cufftDoubleComplex* in, cufftDoubleComplex* out, int direction) {
  return execute<double>(plan, {CUFFT_Z2Z}, direction, in, out);
}
cufftResult cufftExecR2C(cufftHandle plan, cufftReal* in, cufftComplex* out) {
  return execute<float>(plan, {CUFFT_R2C}, -1, in, out);
}
cufftResult cufftExecD2Z(cufftHandle plan, cufftDoubleReal* in, cufftDoubleComplex* out) {
  return execute<double>(plan, {CUFFT_D2Z}, -1, in, out);
}
cufftResult cufftExecC2R(cufftHandle plan, cufftComplex* in, cufftReal* out) {
  return execute<float>(plan, {CUFFT_C2R}, 1, in, out);
}
cufftResult cufftExecZ2D(cufftHandle plan, cufftDoubleComplex* in, cufftDoubleReal* out) {
  return execute<double>(plan, {CUFFT_Z2D}, 1, in, out);
}

}  // extern "C"
