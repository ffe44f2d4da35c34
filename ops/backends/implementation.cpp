#include "ops/backends/implementation.h"

#include <fmt/format.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "framework/base/target_clones.h"

namespace mpigrad::cpu {
namespace {

// Follows the resolvers of MPIGRAD_CLONES, in their order; then the compiler's flags, which also choose for other processors.
std::string_view own_instruction_set() {
#ifdef MPIGRAD_HAS_CLONES
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return "AVX-512";
  if (__builtin_cpu_supports("avx2")) return "AVX2";
#endif
#if defined(__AVX512F__)
  return "AVX-512";
#elif defined(__AVX2__)
  return "AVX2";
#elif defined(__SSE2__)
  return "SSE2";
#elif defined(__ARM_FEATURE_SVE)
  return "SVE";
#elif defined(__ARM_NEON)
  return "NEON";
#else
  return "of the compiler's flags";
#endif
}

// True if the processor multiplies tiles of bfloat16 (AMX), whether or not the operating system permits it.
bool processor_has_amx() {
#ifdef __x86_64__
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned amx_bf16 = 1U << 22;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & amx_bf16) != 0;
#else
  return false;
#endif
}

}  // namespace

std::string instruction_sets() {
  std::string text = fmt::format("own loops {}", own_instruction_set());
  if (const auto set = onednn_instruction_set(); !set.empty()) {
    // oneDNN asks Linux for the permission (arch_prctl) itself; no loop of our own uses tiles.
    const bool unused = processor_has_amx() && set.find("AMX") == std::string::npos;
    text = fmt::format("oneDNN {}{}, {}", set, unused ? " (not the processor's AMX)" : "", text);
  }
  if (const auto kernels = blas_kernels(); !kernels.empty()) text += fmt::format(", OpenBLAS {}", kernels);
  return text;
}

}  // namespace mpigrad::cpu
