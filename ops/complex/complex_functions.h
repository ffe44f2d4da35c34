#pragma once
// Functions of complex numbers that CPU kernels and CUDA kernels share.

#include <cmath>

#include "framework/base/host_device.h"

namespace mpigrad::scalar {

// As elements of complex64 and complex128 lie in memory. The operators of std::complex are slow, because they treat infinities
// separately, and are not available in kernels.
template <class T>
struct Complex {
  T re, im;
};

// a b + c d. A compiler that fuses one product with the sum may choose the first in vectors and the second in the elements that
// remain: bits would then depend on the number of elements on a rank. Where it always may fuse (Arm), this fuses the first.
template <class T>
MPIGRAD_HOST_DEVICE T sum_of_products(T a, T b, T c, T d) {
#if defined(__FP_FAST_FMA) && defined(__FP_FAST_FMAF) && !defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == sizeof(float)) return __builtin_fmaf(a, b, c * d);
  else return __builtin_fma(a, b, c * d);
#else
  return a * b + c * d;
#endif
}

struct ComplexProduct {
  bool conjugate = false;
  template <class T>
  MPIGRAD_HOST_DEVICE Complex<T> operator()(const Complex<T>& a, const Complex<T>& b) const {
    const T im = conjugate ? -a.im : a.im;
    return {sum_of_products(a.re, b.re, -im, b.im), sum_of_products(a.re, b.im, im, b.re)};
  }
};
struct ComplexScale {
  template <class T>
  MPIGRAD_HOST_DEVICE Complex<T> operator()(const Complex<T>& a, T b) const {
    return {a.re * b, a.im * b};
  }
};
// Divides by the larger part first, so that |b|^2 does not overflow (R. L. Smith, "Algorithm 116", 1962).
struct ComplexQuotient {
  bool conjugate = false;
  template <class T>
  MPIGRAD_HOST_DEVICE Complex<T> operator()(const Complex<T>& a, const Complex<T>& b) const {
    const T c = b.re, d = conjugate ? -b.im : b.im;
    if ((c < 0 ? -c : c) >= (d < 0 ? -d : d)) {
      const T ratio = d / c, denominator = c + d * ratio;
      return {(a.re + a.im * ratio) / denominator, (a.im - a.re * ratio) / denominator};
    }
    const T ratio = c / d, denominator = c * ratio + d;
    return {(a.re * ratio + a.im) / denominator, (a.im * ratio - a.re) / denominator};
  }
};
struct ComplexJoin {
  template <class T>
  MPIGRAD_HOST_DEVICE Complex<T> operator()(T re, T im) const {
    return {re, im};
  }
};
struct ComplexPart {
  bool imaginary = false;
  template <class T>
  MPIGRAD_HOST_DEVICE T operator()(const Complex<T>& z) const {
    return imaginary ? z.im : z.re;
  }
};
struct ComplexConj {
  template <class T>
  MPIGRAD_HOST_DEVICE Complex<T> operator()(const Complex<T>& z) const {
    return {z.re, -z.im};
  }
};
struct ComplexAbs {
  MPIGRAD_HOST_DEVICE float operator()(const Complex<float>& z) const {
    const double re = z.re, im = z.im;  // squares of float32 do not overflow in double
    return static_cast<float>(::sqrt(re * re + im * im));
  }
  MPIGRAD_HOST_DEVICE double operator()(const Complex<double>& z) const { return ::hypot(z.re, z.im); }
};

}  // namespace mpigrad::scalar
