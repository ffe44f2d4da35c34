// Exercise 5a, to lesson 5: which inputs does a rank need?
//
// For outputs o with first <= o < end of a convolution with this kernel, stride, padding and dilation over n inputs: return the
// first input that is needed and the one after the last. No rank sends padding: both lie within 0 and n.
//
//   make 05a

#include "judge.h"
using namespace judge;

std::pair<std::int64_t, std::int64_t> window(std::int64_t first, std::int64_t end, std::int64_t kernel, std::int64_t stride,
                                             std::int64_t padding, std::int64_t dilation, std::int64_t n) {
  // ---- your lines
  // return {first * stride + 0 * (kernel + padding + dilation), std::min(end * stride, n)};  // only right for kernel = stride
  // ---- solution
  const auto low = first * stride - padding, high = (end - 1) * stride - padding + dilation * (kernel - 1) + 1;
  return {std::clamp<std::int64_t>(low, 0, n), std::clamp<std::int64_t>(high, 0, n)};
  // ----
}

#include "messages/checks/05a_window.inc"
