#include "comm/halos/window_plan.h"

#include <algorithm>

namespace mpigrad {
namespace {

std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return -floor_divide(-a, b); }

// Cuts of outputs from the monotone map output -> input that determines ownership.
template <class Centre>
std::vector<std::int64_t> owner_cuts(std::int64_t outputs, const std::vector<std::int64_t>& input_cuts, const Centre& centre) {
  const std::int64_t n = input_cuts.back();
  std::vector<std::int64_t> cuts{0};
  for (std::size_t r = 1; r + 1 < input_cuts.size(); ++r) {
    // The first output whose centre lies at or after the cut; by bisection, because extents can be large.
    std::int64_t low = cuts.back(), high = outputs;
    while (low < high) {
      const auto middle = (low + high) / 2;
      if (std::clamp<std::int64_t>(centre(middle), 0, std::max<std::int64_t>(n - 1, 0)) >= input_cuts[r]) high = middle;
      else low = middle + 1;
    }
    cuts.push_back(low);
  }
  cuts.push_back(outputs);
  return cuts;
}

}  // namespace

std::vector<std::int64_t> centred_cuts(const WindowSpec& w, std::int64_t outputs, const std::vector<std::int64_t>& input_cuts) {
  const auto half = w.dilation * (w.kernel - 1) / 2;
  return owner_cuts(outputs, input_cuts, [&](std::int64_t o) { return o * w.stride - w.low + half; });
}

std::vector<std::int64_t> centred_cuts_transposed(const WindowSpec& w, std::int64_t outputs,
                                                  const std::vector<std::int64_t>& input_cuts) {
  const auto half = w.dilation * (w.kernel - 1) / 2;
  return owner_cuts(outputs, input_cuts, [&](std::int64_t o) { return floor_divide(o + w.low - half, w.stride); });
}

WindowPart window_part(const WindowSpec& w, std::int64_t n, std::int64_t first, std::int64_t last) {
  WindowPart part;
  part.out_begin = first, part.out_end = last;
  if (first >= last) return part;
  const auto a = first * w.stride - w.low;
  const auto b = (last - 1) * w.stride - w.low + w.dilation * (w.kernel - 1) + 1;
  part.begin = std::clamp<std::int64_t>(a, 0, n), part.end = std::clamp<std::int64_t>(b, 0, n);
  part.pad_low = std::min(b - a, std::max<std::int64_t>(0, -a));
  part.pad_high = std::min(b - a, std::max<std::int64_t>(0, b - n));
  return part;
}

std::vector<WindowPart> window_parts(const WindowSpec& w, const std::vector<std::int64_t>& input_cuts,
                                     const std::vector<std::int64_t>& output_cuts) {
  std::vector<WindowPart> parts;
  for (std::size_t r = 0; r + 1 < output_cuts.size(); ++r)
    parts.push_back(window_part(w, input_cuts.back(), output_cuts[r], output_cuts[r + 1]));
  return parts;
}

std::vector<WindowPart> window_parts_transposed(const WindowSpec& w, const std::vector<std::int64_t>& input_cuts,
                                                const std::vector<std::int64_t>& output_cuts) {
  const std::int64_t n = input_cuts.back();
  std::vector<WindowPart> parts;
  for (std::size_t r = 0; r + 1 < output_cuts.size(); ++r) {
    WindowPart part;
    part.out_begin = output_cuts[r], part.out_end = output_cuts[r + 1];
    if (part.out_begin < part.out_end) {
      part.begin = std::clamp<std::int64_t>(ceil_divide(part.out_begin + w.low - w.dilation * (w.kernel - 1), w.stride), 0, n);
      part.end = std::clamp<std::int64_t>(floor_divide(part.out_end - 1 + w.low, w.stride) + 1, part.begin, n);
      part.pad_low = part.out_begin + w.low - part.begin * w.stride;
    }
    parts.push_back(part);
  }
  return parts;
}

}  // namespace mpigrad
