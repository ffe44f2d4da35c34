#pragma once
// The computation of the program `halo`: the inputs that each rank needs, receives and pads when a window slides over a line that
// is split into blocks. The mathematics is that of comm/halos/window_plan.h.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/halos/window_plan.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::halo {

constexpr std::int64_t largest = 1'000'000'000;  // of every number, so that no product of two overflows
constexpr int most_ranks = 100'000;

struct Options {
  std::int64_t extent = 1;
  int ranks = 1;
  WindowSpec window{};                       // low is the padding on both sides
  std::vector<std::int64_t> input_blocks{};  // inputs of each rank; empty: balanced, the first ranks one more
  std::string outputs = "balanced";          // or "centred"
  bool transposed = false;
  std::int64_t output_padding = 0;  // transposed only
  bool json = false;
};

struct Receive {
  int from = 0;
  std::int64_t count = 0;
};

// A rank that computes outputs. Its window [a, b) is clipped to the inputs, even where all of it is padding: part.begin,
// part.end.
struct RankPlan {
  WindowPart part;
  // Inputs needed before and after the rank's own block; negative: own inputs at that end that are not needed, possibly more than
  // the block has. left + own block + right is the number of needed inputs.
  std::int64_t left = 0, right = 0;
  // Padding of the window; 0 if transposed.
  std::int64_t pad_left = 0, pad_right = 0;
  // Transposed: the local transposed convolution of m inputs, without padding, produces local_outputs = (m - 1) s + d (k - 1) + 1
  // elements (none if m = 0). Cropping these numbers of elements leaves the rank's outputs; negative: that many zeros are added
  // instead. The first element is the global output part.begin s - p.
  std::int64_t local_outputs = 0, crop_left = 0, crop_right = 0;
  std::vector<Receive> receive;  // from other ranks, ascending, only non-empty messages
};

struct Plan {
  std::vector<std::int64_t> input_cuts, output_cuts;
  std::vector<std::optional<RankPlan>> ranks;  // none: computes no outputs; it may still have to send
};

// "5,0,2": UsageError unless each is a number from 0 to `largest`.
std::vector<std::int64_t> parse_blocks(const std::string& text);

// Outputs: floor((n + 2p - d (k - 1) - 1) / s) + 1; transposed: (n - 1) s - 2p + d (k - 1) + op + 1. UsageError for invalid
// numbers, with the option's name.
Plan make_plan(const Options& options);

nlohmann::ordered_json to_json(const Plan& plan, bool transposed);
// A picture and a sentence for every rank.
std::string to_text(const Plan& plan, const Options& options);
std::string to_svg(const Plan& plan, const Options& options);

}  // namespace mpigrad::halo
