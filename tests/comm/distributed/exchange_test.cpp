// Halo plans by brute force, with random windows, strides, paddings, dilations and cuts: the result of each rank from the inputs
// that its plan names is compared with the undistributed result. Then the exchange of boxes itself.

#include <algorithm>
#include <memory>
#include <vector>

#include "comm/distributed/distributed.h"
#include "comm/halos/exchange.h"
#include "comm/halos/window_plan.h"
#include "framework/base/joined.h"
#include "framework/tensor/random.h"
#include "ops/extents.h"
#include "tests/support/distributed.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

using Line = std::vector<double>;
using Cuts = std::vector<std::int64_t>;

class Random {
 public:
  explicit Random(std::uint64_t seed) : philox_{.key = seed, .stream = 3} {}
  std::int64_t operator()(std::int64_t first, std::int64_t last) {  // both bounds are included
    return first + static_cast<std::int64_t>(philox_.below(counter_++, static_cast<std::uint64_t>(last - first + 1)));
  }
  double real() { return 2 * philox_.uniform(counter_++) - 1; }

 private:
  Philox philox_;
  std::uint64_t counter_ = 0;
};

Cuts random_cuts(Random& random, std::int64_t n, std::int64_t parts) {
  Cuts cuts{0, n};
  for (std::int64_t i = 1; i < parts; ++i) cuts.push_back(random(0, n));
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

Line random_line(Random& random, std::int64_t n) {
  Line x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(random.real());
  return x;
}

// y[o] = sum_t x[o s - low + t d] w[t], o < outputs
Line window_sums(const Line& x, const Line& w, const WindowSpec& s, std::int64_t low, std::int64_t outputs) {
  Line y;
  for (std::int64_t o = 0; o < outputs; ++o) {
    double sum = 0;
    for (std::int64_t t = 0; t < s.kernel; ++t) {
      const auto i = o * s.stride - low + t * s.dilation;
      if (i >= 0 && i < static_cast<std::int64_t>(x.size()))
        sum += x[static_cast<std::size_t>(i)] * w[static_cast<std::size_t>(t)];
    }
    y.push_back(sum);
  }
  return y;
}

// y[i s + t d - low] += x[i] w[t]
Line transposed_sums(const Line& x, const Line& w, const WindowSpec& s, std::int64_t low, std::int64_t outputs) {
  Line y(static_cast<std::size_t>(outputs));
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(x.size()); ++i)
    for (std::int64_t t = 0; t < s.kernel; ++t) {
      const auto o = i * s.stride + t * s.dilation - low;
      if (o >= 0 && o < outputs)
        y[static_cast<std::size_t>(o)] += x[static_cast<std::size_t>(i)] * w[static_cast<std::size_t>(t)];
    }
  return y;
}

bool close(const Line& a, const Line& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::abs(a[i] - b[i]) > 1e-13) return false;
  return true;
}

Line part_of(const Line& x, std::int64_t begin, std::int64_t end) { return {x.begin() + begin, x.begin() + end}; }

struct Counts {
  int cases = 0, empty_ranks = 0, several_neighbours = 0, wide_strides = 0, only_padding = 0;
};

// Runs one case; returns the error as text, or an empty text.
std::string run_case(Random& random, bool transposed, Counts& counts) {
  const std::int64_t n = random(1, 24), ranks = random(1, 8);
  const WindowSpec s{.kernel = random(1, 5), .stride = random(1, 6), .low = random(0, 7), .dilation = random(1, 3)};
  const std::int64_t high = random(0, 7), reach = s.dilation * (s.kernel - 1);
  const auto outputs = transposed ? (n - 1) * s.stride - s.low - high + reach + random(0, s.stride - 1) + 1
                                  : window_outputs(n, s.kernel, s.stride, s.dilation, s.low, high);
  if (outputs < 1) return {};
  const Cuts in = random(0, 1) ? random_cuts(random, n, ranks) : [&] {
    Cuts even;
    for (std::int64_t r = 0; r <= ranks; ++r) even.push_back(r * n / ranks);
    return even;
  }();
  const bool centred = random(0, 2) > 0;
  const Cuts out = !centred     ? random_cuts(random, outputs, ranks)
                   : transposed ? centred_cuts_transposed(s, outputs, in)
                                : centred_cuts(s, outputs, in);
  const auto what = [&](const char* rule) {
    return fmt::format("{}: {} n {} outputs {} k {} s {} p {} {} d {} in {} out {}", rule, transposed ? "transposed" : "window",
                       n, outputs, s.kernel, s.stride, s.low, high, s.dilation, joined(in, "|"), joined(out, "|"));
  };
  if (static_cast<std::int64_t>(out.size()) != ranks + 1 || out.front() != 0 || out.back() != outputs ||
      !std::is_sorted(out.begin(), out.end()))
    return what("output cuts");
  const auto owner = [&](std::int64_t i) { return std::upper_bound(in.begin(), in.end(), i) - in.begin() - 1; };
  if (centred)
    for (std::int64_t r = 0; r < ranks; ++r)
      for (auto o = out[static_cast<std::size_t>(r)]; o < out[static_cast<std::size_t>(r) + 1]; ++o) {
        const auto shifted = transposed ? o + s.low - reach / 2 : o * s.stride - s.low + reach / 2;
        const auto centre = transposed ? (shifted >= 0 ? shifted / s.stride : -1) : shifted;
        if (owner(std::clamp<std::int64_t>(centre, 0, n - 1)) != r) return what("ownership");
      }

  const Line x = random_line(random, n), w = random_line(random, s.kernel);
  const Line y = transposed ? transposed_sums(x, w, s, s.low, outputs) : window_sums(x, w, s, s.low, outputs);
  const auto parts = transposed ? window_parts_transposed(s, in, out) : window_parts(s, in, out);
  if (static_cast<std::int64_t>(parts.size()) != ranks) return what("number of parts");
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const auto& part = parts[r];
    const auto made = part.out_end - part.out_begin;
    if (part.out_begin != out[r] || part.out_end != out[r + 1]) return what("outputs");
    if (part.begin < 0 || part.begin > part.end || part.end > n) return what("inputs");
    if (made == 0) {
      if (part.begin != part.end) return what("an empty rank needs nothing");
      ++counts.empty_ranks;
      continue;
    }
    const Line window = part_of(x, part.begin, part.end);
    const auto local =
        transposed ? made : window_outputs(part.end - part.begin, s.kernel, s.stride, s.dilation, part.pad_low, part.pad_high);
    if (local != made) return what("the local op makes another number of outputs");
    if (!transposed && (part.pad_low < 0 || part.pad_high < 0)) return what("padding");
    if (!close(transposed ? transposed_sums(window, w, s, part.pad_low, made) : window_sums(window, w, s, part.pad_low, made),
               part_of(y, out[r], out[r + 1])))
      return what("values");
    if (part.begin == part.end) {
      ++counts.only_padding;
      continue;
    }
    // Inside the global tensor the plan must not request unused elements at either end.
    const auto used = [&](std::int64_t i) {
      for (auto o = out[r]; o < out[r + 1]; ++o)
        for (std::int64_t t = 0; t < s.kernel; ++t)
          if (transposed ? i * s.stride + t * s.dilation - s.low == o : o * s.stride - s.low + t * s.dilation == i) return true;
      return false;
    };
    if (!transposed && ((part.pad_low == 0 && !used(part.begin)) || (part.pad_high == 0 && !used(part.end - 1))))
      return what("more than is needed");
    if (centred && !transposed && 2 * std::max(s.low, high) <= reach && in[r] < in[r + 1] &&
        (in[r] - part.begin > reach / 2 || part.end - in[r + 1] > (reach + 1) / 2))
      return what("halo wider than half the kernel");
    counts.several_neighbours += owner(part.end - 1) - owner(part.begin) > 2;
  }
  counts.wide_strides += s.stride > s.kernel;
  ++counts.cases;
  return {};
}

}  // namespace

TEST_CASE("halo plans by brute force") {
  for (const bool transposed : {false, true}) {
    Random random(transposed ? 12 : 11);
    Counts counts;
    int wrong = 0;
    while (counts.cases < 15000 && wrong < 3) {
      const auto text = run_case(random, transposed, counts);
      if (text.empty()) continue;
      FAIL_CHECK(text);
      ++wrong;
    }
    CHECK(counts.empty_ranks > 100);
    CHECK(counts.several_neighbours > 100);
    CHECK(counts.wide_strides > 100);
    CHECK(counts.only_padding > 100);
  }
}

TEST_CASE("centred cuts of large extents take no time") {
  const std::int64_t n = std::int64_t{1} << 40;
  const auto cuts = centred_cuts({.kernel = 3, .stride = 2, .low = 1, .dilation = 1}, n / 2, balanced_cuts(n, 15000));
  CHECK(cuts.size() == 15001);
  CHECK(cuts[1] == (n / 15000 + 1) / 2 + (n / 15000 + 1) % 2);
}

// ---- boxes

namespace {

double element(const Shape& at) {
  double value = 0;
  for (const auto i : at) value = value * 31 + static_cast<double>(i) + 1;
  return value;
}

// The elements of a box of the global tensor element(); 0 outside `whole`.
Tensor block(const Box& box, const Box& whole) {
  const Shape shape = box.extents();
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    Shape at = box.begin;
    std::int64_t rest = i;
    bool inside = true;
    for (int d = shape.rank() - 1; d >= 0; --d) at[d] += rest % shape[d], rest /= shape[d];
    for (int d = 0; d < shape.rank(); ++d) inside = inside && at[d] >= whole.begin[d] && at[d] < whole.end[d];
    values.push_back(inside ? element(at) : 0);
  }
  return from_vector(shape, values, DType::float64);
}

Box random_box(Random& random, const Shape& global) {
  Box box{global, global};
  for (int d = 0; d < global.rank(); ++d) {
    auto a = random(0, global[d]), b = random(0, global[d]);
    box.begin[d] = std::min(a, b), box.end[d] = std::max(a, b);
  }
  return box;
}

// Random needs; every rank has one cell of a grid cut at random along two dimensions; some cells are empty.
BoxPlanPtr random_plan(std::uint64_t seed, int ranks, Shape& global) {
  Random random(seed);
  global = {random(1, 6), random(1, 7), random(1, 5)};
  const int along = static_cast<int>(random(0, 2)), across = (along + 1) % 3;
  const int columns = ranks % 2 == 0 ? 2 : 1;
  const auto a = random_cuts(random, global[along], ranks / columns), b = random_cuts(random, global[across], columns);
  auto plan = std::make_shared<BoxPlan>();
  for (int r = 0; r < ranks; ++r) {
    Box have{Shape{0, 0, 0}, global};
    const auto i = static_cast<std::size_t>(r / columns), j = static_cast<std::size_t>(r % columns);
    have.begin[along] = a[i], have.end[along] = a[i + 1];
    have.begin[across] = b[j], have.end[across] = b[j + 1];
    plan->have.push_back(have);
    plan->need.push_back(random(0, 3) == 0 ? have : random_box(random, global));
  }
  return plan;
}

}  // namespace

TEST_CASE("exchange of boxes: values, adjoint, second order") {
  for (const int size : {1, 2, 3, 4, 7})
    check_on_ranks(size, "exchange", [](const Communicator& comm) {
      for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        Shape global;
        const auto plan = random_plan(seed, comm.size(), global);
        const auto r = static_cast<std::size_t>(comm.rank());
        const Box whole{Shape{0, 0, 0}, global};
        require_close("exchange", exchange(block(plan->have[r], whole), comm, plan), block(plan->need[r], whole), 0);
        const auto integers = from_vector(plan->have[r].extents(), block(plan->have[r], whole).to_vector(), DType::int32);
        require_close("exchange of integers", exchange(integers, comm, plan), block(plan->need[r], whole), 0);
        require_adjoint(fmt::format("exchange {}", seed), [&](const Tensors& in) { return Tensors{exchange(in[0], comm, plan)}; },
                        {block(plan->have[r], whole)}, comm, {.seed = seed});
      }
    });
}

TEST_CASE("exchange of boxes: parts that nobody has are 0, and misuse is refused") {
  check_on_ranks(2, "exchange", [](const Communicator& comm) {
    const auto r = static_cast<std::size_t>(comm.rank());
    auto plan = std::make_shared<BoxPlan>();
    plan->have = {{{0}, {2}}, {{5}, {8}}};
    plan->need = {{{1}, {6}}, {{0}, {10}}};
    const auto x = r == 0 ? from_vector({2}, {1, 2}) : from_vector({3}, {6, 7, 8});
    require_close("holes", exchange(x, comm, plan),
                  r == 0 ? from_vector({5}, {2, 0, 0, 0, 6}) : from_vector({10}, {1, 2, 0, 0, 0, 6, 7, 8, 0, 0}), 0);
    require_adjoint(
        "holes", [&](const Tensors& in) { return Tensors{exchange(in[0], comm, plan)}; },
        {zeros(plan->have[r].extents(), DType::float64)}, comm);
    require(error_text([&] { exchange(zeros({4}), comm, plan); }).starts_with("[exchange] the plan says"), "[test] shape");
    auto short_plan = std::make_shared<BoxPlan>(*plan);
    short_plan->need.pop_back();
    require(error_text([&] { exchange(x, comm, short_plan); }).starts_with("[exchange] a plan of 2 and 1 boxes for 2 ranks"),
            "[test] plan");
    // Both have [1, 2); no rank has [3, 5).
    auto twice = std::make_shared<BoxPlan>(*plan);
    twice->have = {{{0}, {2}}, {{1}, {3}}};
    twice->need = {{{0}, {5}}, {{0}, {5}}};
    require(error_text([&] { exchange(zeros({2}), comm, twice); }).starts_with("[exchange] ranks 0 and 1 both have part of box"),
            "[test] overlap");
  });
}

TEST_CASE("exchange of boxes: sent and received parts agree (dry)") {
  for (const int size : {2, 5, 12}) {
    Shape global;
    const auto plan = random_plan(static_cast<std::uint64_t>(size), size, global);
    for (int r = 0; r < size; ++r)
      for (const auto& part : boxes_of(*plan, r).sent) {
        const auto received = boxes_of(*plan, part.peer).received;
        CHECK(std::any_of(received.begin(), received.end(),
                          [&](const BoxPart& other) { return other.peer == r && other.box == part.box; }));
      }
  }
}

TEST_CASE("exchange of boxes: parts along axes are those of all ranks' boxes (dry)") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const Shape global{random(1, 6), random(1, 9), random(1, 7)};
    const int extents[] = {static_cast<int>(random(1, 4)), static_cast<int>(random(1, 3)), static_cast<int>(random(1, 5))};
    std::vector<AxisBlocks> axes;
    std::vector<Box> all{{Shape{0, 0, 0}, global}};
    for (int a = 0; a < 3; ++a) {
      // Windows that overlap, that skip elements or that are empty; or an axis whose first rank has all.
      auto& axis = axes.emplace_back(AxisBlocks{random(0, 4) == 0 ? -1 : a, {}});
      std::vector<Box> more;
      for (int i = 0; i < extents[a]; ++i) {
        const auto first = random(0, global[a]), last = random(0, global[a]);
        axis.ranges.push_back(axis.dimension < 0 ? Range{0, i == 0} : Range{first, last});
      }
      for (const auto& box : all)
        for (const auto& range : axis.ranges) {
          auto& made = more.emplace_back(box);
          if (axis.dimension >= 0) made.begin[a] = range.begin, made.end[a] = range.end;
          else if (range.size() == 0) made.end = made.begin;
        }
      all = std::move(more);
    }
    const auto mine = random_box(random, global);
    const auto expected = boxes_of({std::vector<Box>(all.size(), mine), all}, 0).sent, got = parts_of(mine, axes);
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) CHECK((got[i].peer == expected[i].peer && got[i].box == expected[i].box));
  }
}
