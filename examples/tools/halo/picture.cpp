// The plan as a picture: for each rank the inputs that it needs, each in the colour of the rank that has it, and the outputs that
// it computes.

#include <algorithm>

#include "examples/tools/halo/plan.h"
#include "models/trainer/plot/svg.h"

namespace mpigrad::halo {

using tool::Svg;

std::string to_svg(const Plan& plan, const Options& o) {
  constexpr std::int64_t most_cells = 200;
  constexpr double left = 64, cell = 16, row = 52;
  const auto& w = o.window;
  const auto n = plan.input_cuts.back(), outputs = plan.output_cuts.back();
  const auto reach = w.dilation * (w.kernel - 1), padding = w.low;
  Svg svg;
  const auto title = fmt::format("{} inputs on {} ranks, {}kernel {}, stride {}, padding {}, dilation {}: {} outputs", n, o.ranks,
                                 o.transposed ? "transposed " : "", w.kernel, w.stride, padding, w.dilation, outputs);
  svg.text(10, 20, title, "start", 13);
  if (std::max(n, outputs) > most_cells || o.ranks > 64) {
    svg.text(10, 44, fmt::format("more than {} cells or 64 ranks are not drawn", most_cells), "start", 13);
    return svg.str(title);
  }
  // Inputs and outputs on one axis, as in the text: an output is drawn below the centre of its window.
  const auto first = std::min<std::int64_t>(0, -padding);
  const auto place = [&](std::int64_t i, bool output) {
    const bool spread = output != o.transposed;
    return left + cell * static_cast<double>((spread ? reach / 2 - padding + i * w.stride : i) - first);
  };
  const auto owner = [&](std::int64_t input) {
    return static_cast<int>(std::upper_bound(plan.input_cuts.begin(), plan.input_cuts.end(), input) - plan.input_cuts.begin() -
                            1);
  };
  for (std::int64_t i = 0; i < n; ++i)
    if (n <= 40 || i % 5 == 0) svg.text(place(i, false) + cell / 2, 42, std::to_string(i), "middle", 9);
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    const double y = 52 + row * static_cast<double>(r);
    svg.text(left - 10, y + 13, fmt::format("rank {}", r), "end");
    const auto& rank = plan.ranks[r];
    for (std::int64_t i = 0; i < n; ++i) {
      const bool own = owner(i) == static_cast<int>(r), needed = rank && i >= rank->part.begin && i < rank->part.end;
      if (own || needed)
        svg.rectangle(place(i, false), y, cell - 1, 16, needed ? Svg::colour_of(owner(i), own ? 70 : 60) : "#eee",
                      own ? "stroke=\"#333\" stroke-width=\"1.2\"" : "stroke=\"#bbb\" stroke-dasharray=\"2 1\"");
    }
    if (!rank) continue;
    if (!o.transposed) {
      const auto a = rank->part.out_begin * w.stride - padding, b = (rank->part.out_end - 1) * w.stride - padding + reach + 1;
      for (auto i = a; i < b; ++i)
        if (i < 0 || i >= n) svg.text(left + cell * (static_cast<double>(i - first) + 0.5), y + 12, "p", "middle", 10);
    }
    for (auto i = rank->part.out_begin; i < rank->part.out_end; ++i)
      svg.rectangle(place(i, true) + 2, y + 20, cell - 5, 12, Svg::colour_of(static_cast<int>(r), 45), "rx=\"5\"");
  }
  svg.text(left, 52 + row * static_cast<double>(plan.ranks.size()) + 4,
           "squares: inputs, framed where this rank has them, else in the colour of the rank that sends them; grey: not needed; "
           "p: padding; below: outputs",
           "start", 10);
  return svg.str(title);
}

}  // namespace mpigrad::halo
