#ifndef MPIGRAD_FRAMEWORK_TENSOR_RANDOM_H
#define MPIGRAD_FRAMEWORK_TENSOR_RANDOM_H
// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11). The value at
// a counter needs no state, so keyed by seed, step and *global* element index the numbers are the same on every device and for
// every partition.

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "framework/base/host_device.h"

namespace mpigrad {

struct Philox {
  std::uint64_t key = 0;     // seed
  std::uint64_t stream = 0;  // the purpose of the numbers: step, layer, ...

  // Four random words at position `counter` of the stream.
  MPIGRAD_HOST_DEVICE std::array<std::uint32_t, 4> words(std::uint64_t counter) const {
    std::array<std::uint32_t, 4> c{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                                   static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
    auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0], b = std::uint64_t{0xCD9E8D57} * c[2];
      c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(b),
           static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(a)};
      k0 += 0x9E3779B9, k1 += 0xBB67AE85;
    }
    return c;
  }

  // Uniform in [0, 1), 53 bits.
  MPIGRAD_HOST_DEVICE double uniform(std::uint64_t counter) const {
    const auto w = words(counter);
    return static_cast<double>((std::uint64_t{w[0]} << 21) ^ (w[1] >> 11)) * 0x1p-53;
  }

  // Standard normal by Box and Muller.
  MPIGRAD_HOST_DEVICE double normal(std::uint64_t counter) const {
    const auto w = words(counter);
    const double u = (static_cast<double>((std::uint64_t{w[0]} << 21) ^ (w[1] >> 11)) + 0.5) * 0x1p-53;
    const double v = static_cast<double>((std::uint64_t{w[2]} << 21) ^ (w[3] >> 11)) * 0x1p-53;
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
  }

  // Uniform integer in [0, n).
  MPIGRAD_HOST_DEVICE std::uint64_t below(std::uint64_t counter, std::uint64_t n) const {
    const auto w = words(counter);
    // The high word of a product of 128 bits, from 32-bit halves of the random word.
    const std::uint64_t low = (std::uint64_t{w[1]} * (n & 0xffffffff)) >> 32;
    const std::uint64_t a = std::uint64_t{w[0]} * (n & 0xffffffff), b = std::uint64_t{w[1]} * (n >> 32);
    const std::uint64_t middle = low + (a & 0xffffffff) + (b & 0xffffffff);
    return std::uint64_t{w[0]} * (n >> 32) + (a >> 32) + (b >> 32) + (middle >> 32);
  }

  // An independent generator, number `index`, derived from this one.
  MPIGRAD_HOST_DEVICE Philox child(std::uint64_t index) const {
    const auto w = words(index ^ 0x5851F42D4C957F2DULL);
    return {(std::uint64_t{w[0]} << 32) | w[1], (std::uint64_t{w[2]} << 32) | w[3]};
  }
};

}  // namespace mpigrad

#endif
