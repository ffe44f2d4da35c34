#include "ops/backends/onednn/onednn_defects.h"

#include <cstdlib>
#include <string_view>

#include "ops/kernel/problems.h"

namespace mpigrad::cpu::onednn {
namespace {

bool ignored() {
  const char* setting = std::getenv("MPIGRAD_ONEDNN_DEFECTS");
  return setting != nullptr && std::string_view(setting) == "ignore";
}

// True if no window, or hardly one, lies between those that begin in the padding in front and those that end in the padding at
// the end. oneDNN's AVX-512 kernels for weight gradients then miscount the planes of windows along the depth: the sums are wrong,
// and they write past the end of their buffer. Kernel 7, stride 2, padding 3 on 7 planes is an example.
bool edges_meet(const ConvProblem& p, std::size_t a) {
  const std::int64_t front = ceil_div(p.pad_low[a], p.stride[a]);
  const std::int64_t behind = ceil_div(p.in[a] + p.pad_low[a] - (window_extent(p, a) - 1), p.stride[a]);
  return front > 0 && behind <= front;
}

}  // namespace

bool has_defect(Pass pass, const ConvProblem& p) { return pass == Pass::weight && edges_meet(p, 0) && !ignored(); }

bool has_defect(const PoolProblem& p) {
  // The width has room for one more whole window: kernels for AVX2 and SSE4.1 give wrong sums and write past the end of the
  // result.
  return pad_high(p, 2) <= -p.stride[2] && !ignored();
}

bool right_in_bfloat16(int version, Pass pass, const ConvProblem& p) {
  if (ignored()) return true;
  if (version >= 207 && pass == Pass::weight) return false;
  if (p.groups > 1 || volume(p.kernel) == 1) return false;
  for (std::size_t a = 0; a < 3; ++a) {
    const std::int64_t high = pad_high(p, a);
    const bool odd = p.kernel[a] % 2 == 1, padded_twice = p.pad_low[a] > 0 && high > 0;
    if (!odd || p.dilation[a] > 1 || 2 * p.stride[a] > p.kernel[a] + 1 || high < 0) return false;
    if (p.kernel[a] > p.in[a] || (padded_twice && p.kernel[a] == p.in[a]) || edges_meet(p, a)) return false;
  }
  return true;
}

}  // namespace mpigrad::cpu::onednn
