#include "examples/tools/halo/plan.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "framework/tensor/layout.h"
#include "ops/extents.h"

namespace mpigrad::halo {
namespace {

using tool::UsageError;

// Limits the memory where every rank needs nearly all inputs.
constexpr std::int64_t most_messages = 10'000'000;

void check_number(const char* option, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) throw UsageError(fmt::format("{}: must be from {} to {}, not {}", option, low, high, value));
}

void check(const Options& o) {
  const auto& w = o.window;
  check_number("--extent", o.extent, 1, largest);
  check_number("--ranks", o.ranks, 1, most_ranks);
  check_number("--kernel", w.kernel, 1, largest);
  check_number("--stride", w.stride, 1, largest);
  check_number("--padding", w.low, 0, largest);
  check_number("--dilation", w.dilation, 1, largest);
  if (o.outputs != "balanced" && o.outputs != "centred")
    throw UsageError(fmt::format("--outputs: balanced or centred is needed, not '{}'", o.outputs));
  if (!o.transposed && o.output_padding != 0) throw UsageError("--output-padding: only with --transposed");
  if (o.output_padding < 0 || o.output_padding >= std::max(w.stride, w.dilation))
    throw UsageError(fmt::format("--output-padding: must be at least 0 and below the larger of stride and dilation, {}, not {}",
                                 std::max(w.stride, w.dilation), o.output_padding));
  if (o.input_blocks.empty()) return;
  if (o.input_blocks.size() != static_cast<std::size_t>(o.ranks))
    throw UsageError(fmt::format("--input-blocks: one block for each of the {} ranks is needed, not {} blocks", o.ranks,
                                 o.input_blocks.size()));
  for (const auto block : o.input_blocks) check_number("--input-blocks", block, 0, largest);
  const auto sum = std::accumulate(o.input_blocks.begin(), o.input_blocks.end(), std::int64_t{0});
  if (sum != o.extent)
    throw UsageError(fmt::format("--input-blocks: the blocks hold {} inputs together, --extent is {}", sum, o.extent));
}

std::int64_t number_of_outputs(const Options& o) {
  const auto& w = o.window;
  const auto reach = w.dilation * (w.kernel - 1), padding = w.low;
  if (o.transposed) {
    const auto outputs = (o.extent - 1) * w.stride - 2 * padding + reach + o.output_padding + 1;
    if (outputs < 1)
      throw UsageError(fmt::format("there are no outputs: the transposed window makes {} elements, --padding takes away {}",
                                   outputs + 2 * padding, 2 * padding));
    return outputs;
  }
  if (reach + 1 > o.extent + 2 * padding)
    throw UsageError(fmt::format("there are no outputs: the window covers {} inputs, with padding there are {}", reach + 1,
                                 o.extent + 2 * padding));
  return window_outputs(o.extent, w.kernel, w.stride, w.dilation, padding, padding);
}

// The parts of [begin, end) in the blocks of ranks other than `self`.
std::vector<Receive> intersections(std::int64_t begin, std::int64_t end, const std::vector<std::int64_t>& cuts, int self) {
  std::vector<Receive> result;
  if (begin == end) return result;
  auto r = static_cast<std::size_t>(std::upper_bound(cuts.begin(), cuts.end(), begin) - cuts.begin() - 1);
  for (; r + 1 < cuts.size() && cuts[r] < end; ++r) {
    const auto count = std::min(end, cuts[r + 1]) - std::max(begin, cuts[r]);
    if (count > 0 && static_cast<int>(r) != self) result.push_back({static_cast<int>(r), count});
  }
  return result;
}

std::vector<std::int64_t> blocks_of(const std::vector<std::int64_t>& cuts) {
  std::vector<std::int64_t> blocks;
  for (std::size_t r = 0; r + 1 < cuts.size(); ++r) blocks.push_back(cuts[r + 1] - cuts[r]);
  return blocks;
}

}  // namespace

std::vector<std::int64_t> parse_blocks(const std::string& text) {
  std::vector<std::int64_t> blocks;
  for (const char *at = text.data(), *const end = at + text.size();; ++at) {
    const char* const comma = std::find(at, end, ',');
    std::int64_t block = 0;
    const auto [stop, error] = std::from_chars(at, comma, block);
    if (stop != comma || error != std::errc() || block < 0 || block > largest)
      throw UsageError(
          fmt::format("--input-blocks: numbers from 0 to {}, separated by commas, are needed, not '{}'", largest, text));
    blocks.push_back(block);
    at = comma;
    if (at == end) return blocks;
  }
}

Plan make_plan(const Options& o) {
  check(o);
  const auto& w = o.window;
  const auto outputs = number_of_outputs(o);
  Plan plan;
  auto& in = plan.input_cuts;
  if (o.input_blocks.empty()) {
    in = balanced_cuts(o.extent, o.ranks);
  } else {
    in = {0};
    for (const auto block : o.input_blocks) in.push_back(in.back() + block);
  }
  plan.output_cuts = o.outputs == "balanced" ? balanced_cuts(outputs, o.ranks)
                     : o.transposed          ? centred_cuts_transposed(w, outputs, in)
                                             : centred_cuts(w, outputs, in);
  const auto parts = o.transposed ? window_parts_transposed(w, in, plan.output_cuts) : window_parts(w, in, plan.output_cuts);
  std::int64_t messages = 0;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const auto& part = parts[r];
    auto& entry = plan.ranks.emplace_back();
    if (part.out_begin == part.out_end) continue;
    auto& rank = entry.emplace();
    rank.part = part;
    rank.left = in[r] - part.begin, rank.right = part.end - in[r + 1];
    if (o.transposed) {
      const auto inputs = part.end - part.begin;
      // Element j is global output begin s - p + j. Without inputs all outputs are zeros, added on the right.
      if (inputs > 0) {
        rank.local_outputs = (inputs - 1) * w.stride + w.dilation * (w.kernel - 1) + 1;
        rank.crop_left = part.pad_low;
      }
      rank.crop_right = rank.local_outputs - rank.crop_left - (part.out_end - part.out_begin);
    } else {
      rank.pad_left = part.pad_low, rank.pad_right = part.pad_high;
    }
    rank.receive = intersections(part.begin, part.end, in, static_cast<int>(r));
    messages += static_cast<std::int64_t>(rank.receive.size());
    if (messages > most_messages)
      throw UsageError(
          fmt::format("the plan has more than {} messages: fewer ranks or a smaller window are needed", most_messages));
  }
  return plan;
}

nlohmann::ordered_json to_json(const Plan& plan, bool transposed) {
  using Json = nlohmann::ordered_json;
  Json ranks = Json::array();
  for (const auto& rank : plan.ranks) {
    if (!rank) {
      ranks.push_back(nullptr);
      continue;
    }
    Json entry{{"left", rank->left}, {"right", rank->right}, {"pad_left", rank->pad_left}, {"pad_right", rank->pad_right}};
    if (transposed) entry["crop_left"] = rank->crop_left, entry["crop_right"] = rank->crop_right;
    auto& receive = entry["receive"] = Json::array();
    for (const auto& each : rank->receive) receive.push_back({{"from", each.from}, {"count", each.count}});
    ranks.push_back(std::move(entry));
  }
  return {{"input_blocks", blocks_of(plan.input_cuts)}, {"output_blocks", blocks_of(plan.output_cuts)}, {"ranks", ranks}};
}

}  // namespace mpigrad::halo
