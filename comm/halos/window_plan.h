#pragma once
// Sliding windows over a dimension that is cut into blocks: the inputs that each rank needs for its outputs. n inputs in blocks,
// kernel k, stride s, padding p left and p' right, dilation d; a rank with outputs [o0, o1) needs inputs [o0 s - p,
// (o1 - 1) s - p + d (k - 1) + 1), with padding where that range leaves [0, n).

#include <cstdint>
#include <vector>

namespace mpigrad {

struct WindowSpec {
  std::int64_t kernel = 1, stride = 1, low = 0, dilation = 1;
};

// One rank's part: the inputs [begin, end) it needs, clipped to [0, n), the padding of its window on each side, and its outputs.
struct WindowPart {
  std::int64_t begin = 0, end = 0, pad_low = 0, pad_high = 0, out_begin = 0, out_end = 0;
};

// Cuts of `outputs` outputs: output o goes to the rank that owns input clip(o s - p + floor(d (k - 1) / 2), 0, n - 1), which
// bounds the halo by half the kernel.
std::vector<std::int64_t> centred_cuts(const WindowSpec& spec, std::int64_t outputs, const std::vector<std::int64_t>& input_cuts);
// The same for the transposed window: output o goes to the owner of input clip(floor((o + p - floor(d (k - 1) / 2)) / s), 0, n -
// 1).
std::vector<std::int64_t> centred_cuts_transposed(const WindowSpec& spec, std::int64_t outputs,
                                                  const std::vector<std::int64_t>& input_cuts);

// The part of a rank with outputs [first, last), of n inputs.
WindowPart window_part(const WindowSpec& spec, std::int64_t n, std::int64_t first, std::int64_t last);
// The parts of all ranks, given the cuts of inputs and outputs.
std::vector<WindowPart> window_parts(const WindowSpec& spec, const std::vector<std::int64_t>& input_cuts,
                                     const std::vector<std::int64_t>& output_cuts);
// Transposed: outputs [o0, o1) need inputs ceil((o0 + p - d (k - 1)) / s) to floor((o1 - 1 + p) / s). pad_low is the left padding
// of the local transposed convolution, o0 + p - begin s; it may be negative.
std::vector<WindowPart> window_parts_transposed(const WindowSpec& spec, const std::vector<std::int64_t>& input_cuts,
                                                const std::vector<std::int64_t>& output_cuts);

}  // namespace mpigrad
