// The program `halo`: its JSON against counting, tap by tap, which inputs each output touches.

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "examples/tools/halo/plan.h"

namespace mpigrad::halo {
namespace {

using Blocks = std::vector<std::int64_t>;
using Json = nlohmann::ordered_json;

struct Counts {
  int cases = 0, idle = 0, only_padding = 0, not_needed = 0, several = 0, zeros_added = 0, nothing_needed = 0, empty_blocks = 0;
};

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::int64_t operator()(std::int64_t first, std::int64_t last) {  // both included
    return first + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(last - first + 1));
  }

 private:
  std::mt19937_64 engine_;
};

Options random_options(Random& random, bool transposed) {
  Options o{.extent = random(1, 24), .ranks = static_cast<int>(random(1, 8)), .transposed = transposed};
  o.window = {.kernel = random(1, 5), .stride = random(1, 6), .low = random(0, 7), .dilation = random(1, 3)};
  if (transposed) o.output_padding = random(0, std::max(o.window.stride, o.window.dilation) - 1);
  if (random(0, 1) == 1) o.outputs = "centred";
  if (random(0, 2) > 0) {
    o.input_blocks.resize(static_cast<std::size_t>(o.ranks));
    // Often all in a few blocks, so that others are empty.
    const auto used = random(1, o.ranks);
    for (std::int64_t i = 0; i < o.extent; ++i) ++o.input_blocks[static_cast<std::size_t>(random(0, used - 1))];
    if (random(0, 1) == 1) std::reverse(o.input_blocks.begin(), o.input_blocks.end());
  }
  return o;
}

// Whose element i is.
int owner(const Blocks& blocks, std::int64_t i) {
  int r = 0;
  while (i >= blocks[static_cast<std::size_t>(r)]) i -= blocks[static_cast<std::size_t>(r++)];
  return r;
}

Blocks balanced(std::int64_t n, std::int64_t ranks) {
  Blocks blocks(static_cast<std::size_t>(ranks));
  for (std::int64_t i = 0; i < n; ++i) ++blocks[static_cast<std::size_t>(i % ranks)];
  return blocks;
}

std::int64_t count_outputs(const Options& o) {
  const auto& w = o.window;
  if (o.transposed) return (o.extent - 1) * w.stride - 2 * w.low + w.dilation * (w.kernel - 1) + o.output_padding + 1;
  std::int64_t outputs = 0;  // windows that start at the left padding and end within the right one
  while (outputs * w.stride + w.dilation * (w.kernel - 1) < o.extent + 2 * w.low) ++outputs;
  return outputs;
}

// Blocks of outputs by the definition: who owns the input at the centre of output o's window.
Blocks centred(const Options& o, std::int64_t outputs, const Blocks& in) {
  const auto& w = o.window;
  const auto half = w.dilation * (w.kernel - 1) / 2;
  Blocks blocks(in.size());
  for (std::int64_t out = 0; out < outputs; ++out) {
    std::int64_t centre = out * w.stride - w.low + half;
    if (o.transposed) {  // the last input that starts at or before out + p - half
      centre = -1;
      while ((centre + 1) * w.stride <= out + w.low - half) ++centre;
    }
    ++blocks[static_cast<std::size_t>(owner(in, std::clamp<std::int64_t>(centre, 0, o.extent - 1)))];
  }
  return blocks;
}

// The global outputs of one input value per cell: y[i s - p + t d] += x[i] (t + 1).
Blocks transposed_sums(const Blocks& x, const WindowSpec& w, std::int64_t padding, std::int64_t outputs) {
  Blocks y(static_cast<std::size_t>(outputs));
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(x.size()); ++i)
    for (std::int64_t t = 0; t < w.kernel; ++t)
      if (const auto at = i * w.stride - padding + t * w.dilation; at >= 0 && at < outputs)
        y[static_cast<std::size_t>(at)] += x[static_cast<std::size_t>(i)] * (t + 1);
  return y;
}

// The cells, also of the padding, from the first to the last that outputs [o0, o1) touch.
std::set<std::int64_t> cells_of_window(const Options& o, std::int64_t o0, std::int64_t o1) {
  std::set<std::int64_t> touched;
  for (auto out = o0; out < o1; ++out)
    for (std::int64_t t = 0; t < o.window.kernel; ++t)
      touched.insert(out * o.window.stride - o.window.low + t * o.window.dilation);
  for (auto i = *touched.begin(), last = *touched.rbegin(); i < last; ++i) touched.insert(i);
  return touched;
}

// The inputs whose span of outputs, holes of the dilation included, meets [o0, o1).
std::set<std::int64_t> inputs_of_transposed(const Options& o, std::int64_t o0, std::int64_t o1) {
  std::set<std::int64_t> inputs;
  for (std::int64_t i = 0; i < o.extent; ++i)
    for (std::int64_t u = 0; u <= o.window.dilation * (o.window.kernel - 1); ++u)
      if (const auto out = i * o.window.stride - o.window.low + u; out >= o0 && out < o1) inputs.insert(i);
  return inputs;
}

// What is left of the transposed convolution of `inputs` alone after cropping and adding zeros.
Blocks cropped(const Options& o, const Blocks& x, const std::set<std::int64_t>& inputs, const Json& rank) {
  Blocks own;
  for (const auto i : inputs) own.push_back(x[static_cast<std::size_t>(i)]);
  const auto reach = o.window.dilation * (o.window.kernel - 1);
  const auto full = own.empty() ? 0 : (static_cast<std::int64_t>(own.size()) - 1) * o.window.stride + reach + 1;
  const auto local = transposed_sums(own, o.window, 0, full);
  const std::int64_t left = rank["crop_left"], right = rank["crop_right"];
  Blocks result;
  for (auto j = left; j < full - right; ++j) result.push_back(j >= 0 && j < full ? local[static_cast<std::size_t>(j)] : 0);
  return result;
}

// One case; nothing, or what is wrong.
std::string wrong(const Options& o, Counts& counts) {
  const auto outputs = count_outputs(o);
  if (outputs < 1) {
    try {
      make_plan(o);
    } catch (const tool::UsageError&) {
      return {};
    }
    return "no outputs, and no error";
  }
  // As a reader of the text gets it.
  const auto plan = Json::parse(tool::to_text(to_json(make_plan(o), o.transposed)));
  const Blocks in = plan["input_blocks"], out = plan["output_blocks"];
  if (in != (o.input_blocks.empty() ? balanced(o.extent, o.ranks) : o.input_blocks)) return "input blocks";
  if (out != (o.outputs == "centred" ? centred(o, outputs, in) : balanced(outputs, o.ranks))) return "output blocks";
  if (plan["ranks"].size() != in.size()) return "number of ranks";
  Blocks x;
  for (std::int64_t i = 0; i < o.extent; ++i) x.push_back(7 * i * i + 3 * i + 1);
  const auto y = transposed_sums(x, o.window, o.window.low, o.transposed ? outputs : 0);

  std::int64_t own_begin = 0, o0 = 0;
  for (std::size_t r = 0; r < in.size(); own_begin += in[r], o0 += out[r], ++r) {
    const auto& rank = plan["ranks"][r];
    counts.empty_blocks += in[r] == 0;
    if (rank.is_null() != (out[r] == 0)) return "null";
    if (rank.is_null()) {
      ++counts.idle;
      continue;
    }
    auto cells = o.transposed ? inputs_of_transposed(o, o0, o0 + out[r]) : cells_of_window(o, o0, o0 + out[r]);
    const auto beyond_left = std::count_if(cells.begin(), cells.end(), [](auto i) { return i < 0; });
    const auto beyond_right = std::count_if(cells.begin(), cells.end(), [&](auto i) { return i >= o.extent; });
    if (rank["pad_left"] != beyond_left || rank["pad_right"] != beyond_right) return "padding";
    std::erase_if(cells, [&](auto i) { return i < 0 || i >= o.extent; });

    std::map<int, std::int64_t> counted;
    for (const auto i : cells) ++counted[owner(in, i)];
    counted.erase(static_cast<int>(r));
    Json receive = Json::array();
    for (const auto& [from, count] : counted) receive.push_back({{"from", from}, {"count", count}});
    if (rank["receive"] != receive) return "receive";
    counts.several += counted.size() > 2;

    const std::int64_t left = rank["left"], right = rank["right"];
    if (left + in[r] + right != static_cast<std::int64_t>(cells.size())) return "left and right";
    if (!cells.empty() && left != own_begin - *cells.begin()) return "left";
    counts.only_padding += !o.transposed && cells.empty();
    counts.nothing_needed += o.transposed && cells.empty();
    counts.not_needed += left < 0 || right < 0;
    if (!o.transposed) {
      if (rank.contains("crop_left") || rank.contains("crop_right")) return "a window crops nothing";
      continue;
    }
    if (cropped(o, x, cells, rank) != Blocks(y.begin() + o0, y.begin() + o0 + out[r])) return "crop";
    counts.zeros_added += rank["crop_left"] < 0 || rank["crop_right"] < 0;
  }
  ++counts.cases;
  return {};
}

}  // namespace

TEST_CASE("halo: plans by counting every tap") {
  for (const bool transposed : {false, true}) {
    Random random(transposed ? 2 : 1);
    Counts counts;
    for (int failures = 0; counts.cases < 5000 && failures < 3;) {
      const auto o = random_options(random, transposed);
      const auto text = wrong(o, counts);
      if (text.empty()) continue;
      const auto& w = o.window;
      FAIL_CHECK(fmt::format("{}: n {} ranks {} k {} s {} p {} d {} blocks {} {} transposed {} {}", text, o.extent, o.ranks,
                             w.kernel, w.stride, w.low, w.dilation, Json(o.input_blocks).dump(), o.outputs, transposed,
                             o.output_padding));
      ++failures;
    }
    CHECK(counts.idle > 100);
    CHECK(counts.empty_blocks > 100);
    CHECK(counts.several > 100);
    CHECK(counts.not_needed > 100);
    CHECK((transposed ? counts.nothing_needed : counts.only_padding) > 100);
    if (transposed) CHECK(counts.zeros_added > 100);
  }
}

TEST_CASE("halo: a window wholly in padding") {
  // Of two inputs, outputs 0 and 1 read the cells -3 and -2, outputs 6 and 7 the cells 3 and 4.
  Options o{.extent = 2, .ranks = 4};
  o.window.low = 3;
  const auto plan = make_plan(o);
  REQUIRE(plan.output_cuts == Blocks{0, 2, 4, 6, 8});
  CHECK(plan.ranks[0]->pad_left == 2);
  CHECK(plan.ranks[0]->pad_right == 0);
  CHECK(plan.ranks[0]->right == -1);
  CHECK(plan.ranks[3]->pad_left == 0);
  CHECK(plan.ranks[3]->pad_right == 2);
  CHECK(plan.ranks[3]->receive.empty());
}

TEST_CASE("halo: the largest numbers do not overflow, and their picture has a width") {
  for (const bool transposed : {false, true}) {
    Options o{.extent = largest, .ranks = 3, .transposed = transposed};
    o.window = {.kernel = transposed ? largest : 2, .stride = largest, .low = largest / 2, .dilation = largest};
    const auto plan = make_plan(o);
    CHECK(plan.output_cuts.back() == (transposed ? 2 * (largest - 1) * largest - largest + 1 : 1));
    const auto text = to_text(plan, o);
    for (std::size_t at = 0, line = 0; line < 8; ++line) {
      const auto end = text.find('\n', at);
      if (line > 1) CHECK(end - at < 100);  // below the title
      at = end + 1;
    }
  }
}

TEST_CASE("halo: pictures") {
  const auto picture = [](const Options& o) {
    const auto text = to_text(make_plan(o), o);
    const auto begin = text.find("\n\n") + 2;
    return text.substr(begin, text.find("\n\n", begin) + 1 - begin);
  };
  Options o{.extent = 10, .ranks = 2};
  o.window = {.kernel = 5, .stride = 2, .low = 2};
  CHECK(picture(o) ==
        "          0         10\n"
        "rank 0  pp#####oo...\n"
        "          ^ ^ ^\n"
        "rank 1    ....o#####p\n"
        "                ^ ^\n");
  // Input i makes outputs 2 i - 1 to 2 i + 1 and stands above the middle one; the last output has no input.
  o = {.extent = 3, .ranks = 2, .transposed = true, .output_padding = 1};
  o.window = {.kernel = 3, .stride = 2, .low = 1};
  CHECK(picture(o) ==
        "         0\n"
        "rank 0   # # .\n"
        "        x^^^x\n"
        "rank 1   . o #\n"
        "          xx^^^\n");
  // Rank 1 needs none of its own; rank 2 is idle.
  o = {.extent = 6, .ranks = 3};
  o.window = {.kernel = 1, .stride = 5};
  CHECK(picture(o) ==
        "        0\n"
        "rank 0  #-....\n"
        "        ^\n"
        "rank 1  ..--.o\n"
        "             ^\n"
        "rank 2  ....--\n");
}

}  // namespace mpigrad::halo
