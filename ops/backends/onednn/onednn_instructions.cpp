// The instructions that oneDNN uses.

#include <fmt/format.h>

#include <string>

#include "ops/backends/implementation.h"
#include "ops/backends/onednn/onednn.h"

namespace mpigrad::cpu {

bool onednn_present() { return true; }

std::string onednn_instruction_set() {
#ifndef __x86_64__
  return "for this processor";  // oneDNN names instruction sets of x86 only
#else
  const auto set = dnnl::get_effective_cpu_isa();
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wswitch-enum"
  switch (set) {
    case dnnl::cpu_isa::sse41: return "SSE4.1";
    case dnnl::cpu_isa::avx: return "AVX";
    case dnnl::cpu_isa::avx2: return "AVX2";
    case dnnl::cpu_isa::avx2_vnni: return "AVX2 with VNNI";
    case dnnl::cpu_isa::avx512_core: return "AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni: return "AVX-512 with VNNI";
    case dnnl::cpu_isa::avx512_core_bf16: return "AVX-512 with bfloat16";
    case dnnl::cpu_isa::avx512_core_amx: return "AVX-512 with AMX";
    // Newer versions know more instruction sets, and a processor below SSE4.1 has a name only in some versions.
    default:
      if (onednn::has(dnnl::cpu_isa::avx512_core_amx)) return "AVX-512 with AMX and more";
      return fmt::format("instructions {:#x}", static_cast<unsigned>(set));
  }
#pragma GCC diagnostic pop
#endif
}

}  // namespace mpigrad::cpu
