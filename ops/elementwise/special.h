#pragma once
// Special functions of one number, for CPU and CUDA kernels: functions that the C++ library lacks, or that are not thread-safe
// there.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "framework/base/host_device.h"

namespace mpigrad::special {

// x < 0, without a compiler's warning where T has no sign.
template <class T>
MPIGRAD_HOST_DEVICE bool negative(T x) {
  if constexpr (std::is_unsigned_v<T>) return false;
  else return x < T(0);
}

// log |Gamma(x)|. The C library's lgamma() writes the sign to a variable that all threads share.
template <class T>
MPIGRAD_HOST_DEVICE T lgamma(T x) {
#ifdef __CUDA_ARCH__
  return std::lgamma(x);
#else
  int sign = 0;
  if constexpr (sizeof(T) == 4) return ::lgammaf_r(x, &sign);
  else return ::lgamma_r(x, &sign);
#endif
}

// y with erf(y) = x. Starts from Winitzki's approximation (relative error 2e-3) and takes Halley's steps on erf, or on erfc in
// the tails, where 1 - |x| is exact.
inline MPIGRAD_HOST_DEVICE double erfinv(double x) {
  const double size = std::abs(x);
  if (!(size < 1)) return size == 1 ? x * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  constexpr double two_over_pi_a = 4.330746750799873, two_over_sqrt_pi = 1.1283791670955126, a = 0.147;
  const double log = std::log1p(-x * x), half = two_over_pi_a + 0.5 * log;
  double y = std::sqrt(std::sqrt(half * half - log / a) - half);
  if (size < 1e-8) return x / two_over_sqrt_pi;
  for (int step = 0; step < 3; ++step) {
    const double error = size < 0.5 ? std::erf(y) - size : (1 - size) - std::erfc(y);
    const double newton = error / (two_over_sqrt_pi * std::exp(-y * y));
    y -= newton / (1 + y * newton);
  }
  return std::copysign(y, x);
}

// The derivative of `order` of digamma, the derivative of log Gamma: recurrence to x >= 12, then the asymptotic series
// (Abramowitz and Stegun, 6.3.18 and 6.4.11). Infinite or NaN at 0, -1, -2, ...; NaN for orders of at least 2 below -1e4.
inline MPIGRAD_HOST_DEVICE double polygamma(int order, double x) {
  constexpr double pi = 3.14159265358979323846, infinity = std::numeric_limits<double>::infinity();
  if (x != x) return x;
  if (x <= 0 && x == std::floor(x)) return order % 2 == 1 ? infinity : std::numeric_limits<double>::quiet_NaN();
  if (x < 0 && order == 0) {
    const double part = pi * (x - std::floor(x));
    return polygamma(0, 1 - x) - pi / std::tan(part);
  }
  if (x < 0 && order == 1) {
    const double sine = std::sin(pi * (x - std::floor(x)));
    return pi * pi / (sine * sine) - polygamma(1, 1 - x);
  }
  if (x < -1e4) return std::numeric_limits<double>::quiet_NaN();
  double factorial = 1;  // of the order, at least of 0
  for (int k = 2; k <= order; ++k) factorial *= k;
  const auto power = [](double base, int exponent) {
    double result = 1;
    for (int k = 0; k < exponent; ++k) result *= base;
    return result;
  };
  double sum = 0;  // of digamma -1 / x, of the others n! / x^(n + 1) without their sign
  for (; x < 12 + order; x += 1) sum += factorial / power(x, order + 1);
  // Bernoulli's numbers B_2, B_4, ...
  constexpr double bernoulli[] = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6, -3617.0 / 510};
  if (order == 0) {
    double series = std::log(x) - 0.5 / x, square = 1;
    for (int k = 0; k < 8; ++k) series -= bernoulli[k] / (2 * (k + 1) * (square *= x * x));
    return x == infinity ? x : series - sum;
  }
  double term = factorial / order / power(x, order);  // (n - 1)! / x^n
  double series = term + 0.5 * factorial / power(x, order + 1);
  // B_2k (2k + n - 1)! / ((2k)! x^(2k + n))
  double ratio = term;
  for (int k = 1; k <= 8; ++k) {
    ratio *= (2 * k + order - 2.0) * (2 * k + order - 1.0) / ((2 * k - 1.0) * (2 * k) * x * x);
    series += bernoulli[k - 1] * ratio;
  }
  return (order % 2 == 1 ? 1 : -1) * (x == infinity ? 0 : series + sum);
}

// a^b modulo 2^bits; a^-b is 1 / a^b, rounded towards zero, and 0 for a = 0.
template <class T>
MPIGRAD_HOST_DEVICE T power(T a, T b) {
  if (negative(b)) {
    if (a == T(1)) return T(1);
    if (a == T(-1)) return b % 2 == 0 ? T(1) : T(-1);
    return T(0);
  }
  std::uint64_t result = 1, base = static_cast<std::uint64_t>(a);
  for (auto rest = static_cast<std::uint64_t>(b); rest > 0; rest /= 2, base *= base)
    if (rest % 2 == 1) result *= base;
  return static_cast<T>(result);
}

}  // namespace mpigrad::special
