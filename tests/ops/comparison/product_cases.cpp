#include "tests/ops/comparison/product_cases.h"

#include <array>

namespace mpigrad::testing {
namespace {

using Cuts = std::vector<std::int64_t>;
// The axes of the grid.
constexpr int sample = 0, depth = 1, channel = 2, filter = 3;

Extent3 three(Dice& dice, std::int64_t first, std::int64_t last) {
  return {dice(first, last), dice(first, last), dice(first, last)};
}

Activation random_activation(Dice& dice) {
  static constexpr Activation some[]{Activation::none, Activation::leaky_relu(0.25), Activation::none, Activation::silu};
  return some[dice(0, 3)];
}

// Distributes the prime factors of the number of ranks, most of them to the channels.
GridPtr random_grid(const Communicator& comm, Dice& dice) {
  std::vector<int> extents(4, 1);
  for (int rest = comm.size(), prime = 2; rest > 1; ++prime)
    for (; rest % prime == 0; rest /= prime) {
      static constexpr std::array axes{channel, channel, channel, sample, depth, filter};
      extents[static_cast<std::size_t>(axes[static_cast<std::size_t>(dice(0, 5))])] *= prime;
    }
  return std::make_shared<Grid>(comm, std::vector<std::string>{"sample", "depth", "channel", "filter"}, extents);
}

// Cuts n channels between groups.
Cuts channel_cuts(Dice& dice, std::int64_t n, std::int64_t groups, int parts) {
  auto cuts = dice(0, 1) ? balanced_cuts(groups > 1 ? groups : n, parts) : dice.cuts(groups > 1 ? groups : n, parts);
  for (auto& cut : cuts) cut *= groups > 1 ? n / groups : 1;
  return cuts;
}

}  // namespace

ProductCase random_conv_product(Dice& dice) {
  for (;;) {
    const std::int64_t groups = dice(0, 1) ? 1 : dice(2, 4), in = groups * dice(1, 4), out = groups * dice(1, 4);
    const auto k = three(dice, 1, 3);
    const Shape x{dice(1, 3), dice(2, 6), dice(1, 4), dice(1, 4), in};
    ConvAttributes a{.stride = three(dice, 1, 3),
                     .dilation = three(dice, 1, 2),
                     .padding = Padding::sides(three(dice, 0, 2), three(dice, 0, 2)),
                     .groups = groups,
                     .activation = random_activation(dice)};
    bool fits = true;
    for (std::size_t i = 0; i < 3; ++i)
      fits = fits && window_outputs(x[static_cast<int>(i) + 1], k[i], a.stride[i], a.dilation[i], a.padding.low[i],
                                    a.padding.high[i]) > 0;
    if (!fits) continue;
    return {"conv",
            x,
            {out, k[0], k[1], k[2], in / groups},
            groups,
            out,
            false,
            dice(0, 1) == 1,
            [=](const Tensors& t, const SplitOutputs& o) { return conv(t[0], t[1], t[2], a, o); }};
  }
}

ProductCase random_conv_transpose_product(Dice& dice) {
  for (;;) {
    const std::int64_t groups = dice(0, 1) ? 1 : dice(2, 3), in = groups * dice(1, 4), out = groups * dice(1, 3);
    const auto k = three(dice, 1, 3);
    const Shape x{dice(1, 2), dice(2, 5), dice(1, 3), dice(1, 3), in};
    ConvTransposeAttributes a{.stride = three(dice, 1, 3),
                              .dilation = three(dice, 1, 2),
                              .padding = Padding::sides(three(dice, 0, 1), three(dice, 0, 1)),
                              .groups = groups,
                              .activation = random_activation(dice)};
    bool fits = true;
    for (std::size_t i = 0; i < 3; ++i) {
      a.output_padding[i] = dice(0, a.stride[i] - 1);
      fits = fits && (x[static_cast<int>(i) + 1] - 1) * a.stride[i] - a.padding.low[i] - a.padding.high[i] +
                             a.dilation[i] * (k[i] - 1) + a.output_padding[i] >=
                         0;
    }
    if (!fits) continue;
    return {"conv_transpose",
            x,
            {in, k[0], k[1], k[2], out / groups},
            groups,
            out,
            true,
            dice(0, 1) == 1,
            [=](const Tensors& t, const SplitOutputs& o) { return conv_transpose(t[0], t[1], t[2], a, o); }};
  }
}

ProductCase random_linear_product(Dice& dice) {
  const std::int64_t in = dice(1, 9), out = dice(1, 9);
  const auto activation = random_activation(dice);
  return {"linear", {dice(1, 5), in}, {out, in}, 1, out, false, dice(0, 1) == 1, [=](const Tensors& t, const SplitOutputs& o) {
            return linear(t[0], t[1], t[2], activation, o);
          }};
}

ProductSplit random_split(const Communicator& comm, const ProductCase& product, Dice& dice) {
  const auto grid = random_grid(comm, dice);
  const auto along = [&](int axis) { return grid->extents[static_cast<std::size_t>(axis)]; };
  const int last = product.x.rank() - 1, w_last = product.w.rank() - 1;
  const int w_in = product.transposed ? 0 : w_last, w_out = product.transposed ? w_last : 0;
  const auto in = product.x[last], groups = product.groups;
  Layout x{grid, product.x, std::vector<AxisPlacement>(4)}, w{grid, product.w, x.axes}, bias{grid, {product.out}, x.axes};
  // If the grid has more than one rank along the axis.
  const auto split = [&](Layout& layout, int axis, int dimension, Cuts cuts) {
    if (along(axis) > 1) layout.axes[static_cast<std::size_t>(axis)] = {Placement::split, dimension, std::move(cuts)};
  };
  const auto any_cuts = [&](std::int64_t n, int axis) { return channel_cuts(dice, n, 1, along(axis)); };
  if (dice(0, 3)) split(x, sample, 0, any_cuts(product.x[0], sample));
  if (last > 1 && dice(0, 3)) split(x, depth, 1, any_cuts(product.x[1], depth));

  ProductSplit result;
  result.grid = grid;
  const bool plain_w = dice(0, 2) == 0;  // or with a layout in which nothing splits it
  bool w_is_split = false;
  const auto split_w = [&](int axis, int dimension, Cuts cuts) {
    split(w, axis, dimension, std::move(cuts));
    w_is_split = true;
  };
  if (groups > 1) {
    const auto cuts = channel_cuts(dice, in, groups, along(channel));
    auto of_w = cuts;
    for (auto& cut : of_w) cut = cut / (in / groups) * (product.w[0] / groups);
    const auto mode = dice(0, 3);
    result.scheme = fmt::format("groups {}", mode);
    if (mode != 1 && mode != 3) split(x, channel, last, cuts);
    if (mode == 0 || mode == 1) split_w(channel, 0, of_w);
    if (mode == 3) result.outputs = {.axis = channel};
  } else {
    const auto of_in = any_cuts(in, channel), of_out = any_cuts(product.out, channel);
    const auto mode = dice(0, 9);
    static constexpr const char* names[] = {"filters of x the same", "filters, asked for",   "filters of x gathered", "channels",
                                            "channels, w the same",  "channels scattered",   "channels of w alone",   "both",
                                            "gathered and cut",      "weights kept in parts"};
    result.scheme = names[mode];
    if (mode == 0 || mode == 2 || mode == 8) split_w(channel, w_out, of_out);
    if (mode == 1) result.outputs = {.axis = channel};
    if (mode == 2 || (mode >= 3 && mode <= 5) || mode >= 7) split(x, channel, last, of_in);
    if (mode == 3 || (mode == 5 && dice(0, 1)) || mode == 6 || mode == 7) split_w(channel, w_in, of_in);
    if (mode == 5) result.outputs = {.axis = channel, .cuts = dice(0, 1) ? of_out : Cuts{}};
    if (mode == 7) split_w(filter, w_out, any_cuts(product.out, filter));
    if (mode == 8) split_w(filter, w_in, any_cuts(in, filter));
    if (mode == 9) split_w(sample, w_out, any_cuts(product.out, sample));
  }
  if (product.bias && dice(0, 2)) {
    if (dice(0, 1)) split(bias, static_cast<int>(dice(0, 3)), 0, any_cuts(product.out, channel));
    for (std::size_t a = 0; a < bias.axes.size(); ++a)
      if (bias.axes[a].placement == Placement::split && static_cast<int>(bias.axes[a].cuts.size()) != grid->extents[a] + 1)
        bias.axes[a].cuts = balanced_cuts(product.out, grid->extents[a]);
    result.bias = std::make_shared<Layout>(bias);
  }
  result.x = std::make_shared<Layout>(x);
  if (w_is_split || !plain_w) result.w = std::make_shared<Layout>(w);
  return result;
}

}  // namespace mpigrad::testing
