#pragma once
// Resolves ONNX's descriptions of windows to paddings: pure functions of extents, one spatial dimension at a time.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/ops/conformance/onnx_case.h"

namespace mpigrad::testing {

struct OnnxWindow {
  std::int64_t in = 0, out = 0, kernel = 1, stride = 1, dilation = 1;
  std::int64_t low = 0, high = 0;  // padding; with ceil mode `out` may count a window that starts before in + low + high ends
  bool operator==(const OnnxWindow&) const = default;
};

// auto_pad is NOTSET (low and high count), VALID (no padding), SAME_UPPER or SAME_LOWER (ceil(in / stride) outputs; the odd
// element of padding goes to the end or to the beginning). Ceil mode drops a last window that would start in the high padding.
OnnxWindow resolve_window(OnnxWindow window, const std::string& auto_pad, bool ceil_mode);

// Transposed convolution: `in` inputs give  (in - 1) stride + output_padding + dilation (kernel - 1) + 1 - low - high  outputs.
// If an output extent (>= 0) or SAME_* (in * stride outputs) is given, it determines the padding instead: excess outputs are cut
// off half at each end, the odd one at the end for SAME_UPPER and at the beginning otherwise; missing outputs are added at the
// end, as a negative high padding.
OnnxWindow resolve_transposed_window(OnnxWindow window, const std::string& auto_pad, std::int64_t output_padding,
                                     std::int64_t wanted);

// The windows of a node over inputs with spatial extents `in` and kernels `kernel`, one per dimension.
std::vector<OnnxWindow> windows_of(const OnnxNode& node, const std::vector<std::int64_t>& in,
                                   const std::vector<std::int64_t>& kernel);
std::vector<OnnxWindow> transposed_windows_of(const OnnxNode& node, const std::vector<std::int64_t>& in,
                                              const std::vector<std::int64_t>& kernel);

}  // namespace mpigrad::testing
