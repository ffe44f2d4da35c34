#include "tests/ops/conformance/onnx_window.h"

#include <algorithm>

#include "framework/base/error.h"

namespace mpigrad::testing {
namespace {

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t reach(const OnnxWindow& window) { return window.dilation * (window.kernel - 1) + 1; }

void check_auto_pad(const std::string& auto_pad) {
  require(auto_pad == "NOTSET" || auto_pad == "VALID" || auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER",
          "[onnx] unknown auto_pad: {}", auto_pad);
}

// Kernel, stride, dilation and paddings of each dimension, from the attributes.
std::vector<OnnxWindow> described_windows(const OnnxNode& node, const std::vector<std::int64_t>& in,
                                          const std::vector<std::int64_t>& kernel) {
  const std::size_t rank = in.size();
  require(kernel.size() == rank, "[onnx] {} kernel extents for {} dimensions: {}", kernel.size(), rank, node.op);
  const std::vector<std::int64_t> unit(rank, 1), none(2 * rank, 0);
  const auto strides = node.integers("strides", unit), dilations = node.integers("dilations", unit);
  const auto pads = node.integers("pads", none);  // all beginnings, then all ends
  require(strides.size() == rank && dilations.size() == rank && pads.size() == 2 * rank,
          "[onnx] strides, dilations and pads do not fit {} dimensions: {}", rank, node.op);
  std::vector<OnnxWindow> windows(rank);
  for (std::size_t d = 0; d < rank; ++d)
    windows[d] = {.in = in[d],
                  .out = 0,
                  .kernel = kernel[d],
                  .stride = strides[d],
                  .dilation = dilations[d],
                  .low = pads[d],
                  .high = pads[rank + d]};
  return windows;
}

}  // namespace

OnnxWindow resolve_window(OnnxWindow window, const std::string& auto_pad, bool ceil_mode) {
  check_auto_pad(auto_pad);
  if (auto_pad == "VALID") window.low = window.high = 0;
  if (auto_pad.starts_with("SAME")) {
    window.out = ceil_divide(window.in, window.stride);
    const auto total = std::max<std::int64_t>(0, (window.out - 1) * window.stride + reach(window) - window.in);
    window.low = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    window.high = total - window.low;
    return window;
  }
  const auto span = window.in + window.low + window.high - reach(window);
  require(span >= 0, "[onnx] the window is longer than the padded input: {} of {}", reach(window),
          window.in + window.low + window.high);
  window.out = (ceil_mode ? ceil_divide(span, window.stride) : span / window.stride) + 1;
  if (ceil_mode && (window.out - 1) * window.stride >= window.in + window.low) --window.out;
  return window;
}

OnnxWindow resolve_transposed_window(OnnxWindow window, const std::string& auto_pad, std::int64_t output_padding,
                                     std::int64_t wanted) {
  check_auto_pad(auto_pad);
  if (auto_pad == "VALID") window.low = window.high = 0;
  const auto full = (window.in - 1) * window.stride + output_padding + reach(window);
  if (wanted < 0 && auto_pad.starts_with("SAME")) wanted = window.in * window.stride;
  if (wanted >= 0) {
    const auto total = full - wanted;
    const auto half = std::max<std::int64_t>(total, 0) / 2;
    window.low = auto_pad == "SAME_UPPER" || total < 0 ? half : total - half;
    window.high = total - window.low;
  }
  window.out = full - window.low - window.high;
  return window;
}

std::vector<OnnxWindow> windows_of(const OnnxNode& node, const std::vector<std::int64_t>& in,
                                   const std::vector<std::int64_t>& kernel) {
  auto windows = described_windows(node, in, kernel);
  for (auto& window : windows)
    window = resolve_window(window, node.text("auto_pad", "NOTSET"), node.integer("ceil_mode", 0) != 0);
  return windows;
}

std::vector<OnnxWindow> transposed_windows_of(const OnnxNode& node, const std::vector<std::int64_t>& in,
                                              const std::vector<std::int64_t>& kernel) {
  auto windows = described_windows(node, in, kernel);
  const std::vector<std::int64_t> none(in.size(), 0), unknown(in.size(), -1);
  const auto output_padding = node.integers("output_padding", none), wanted = node.integers("output_shape", unknown);
  require(output_padding.size() == in.size() && wanted.size() == in.size(),
          "[onnx] output_padding and output_shape do not fit: {}", node.op);
  for (std::size_t d = 0; d < in.size(); ++d)
    windows[d] = resolve_transposed_window(windows[d], node.text("auto_pad", "NOTSET"), output_padding[d], wanted[d]);
  return windows;
}

}  // namespace mpigrad::testing
