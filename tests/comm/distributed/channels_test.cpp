// Products and layers on tensors with split channels, also combined with split samples and space: values and gradients of every
// scheme equal those of one rank.

#include "comm/distributed/channels.h"

#include <doctest/doctest.h>

#include <array>
#include <functional>

#include "comm/distributed/distributed.h"
#include "comm/distributed/upsample.h"
#include "framework/optim/optimizer.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/ops/comparison/product_cases.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

using Function = std::function<Tensor(const Tensors&)>;

Tensor cotangent(const Tensor& y, std::uint64_t seed) {
  return constant(global_tensor(y.layout() ? y.layout()->global : y.shape(), seed, y.layout(), y.dtype()));
}

struct Result {
  Tensor y;
  Tensors gradients, second;
};

// The gradients of sum y u; for second order the gradients of the sum of squares of the gradients of sum (y + y^2) u.
Result run_case(const Function& f, const Tensors& in, std::uint64_t seed, bool second_order) {
  Tensors wanted;
  for (const auto& t : in)
    if (t) wanted.push_back(t);
  Tape tape;
  const auto y = f(in);
  if (!second_order) return {y, tape.vjp({y}, {cotangent(y, seed)}, wanted), {}};
  const auto u = cotangent(y, seed);
  auto gradients = tape.vjp({y + square(y)}, {u}, wanted, Record::yes);
  Tensor objective;
  for (const auto& g : gradients) {
    const auto term = sum(square(g));
    const auto whole = term.layout() ? gather_all(term) : term;
    objective = objective ? objective + whole : whole;
  }
  auto second = tape.gradient(objective, wanted);
  return {y, std::move(gradients), std::move(second)};
}

void require_part(const std::string& what, const Tensor& found, const Tensor& whole, double tolerance = 1e-12) {
  require_close(what, found, found.layout() ? part_of(whole, found.layout()) : whole, tolerance);
}

// f on whole operands and on blocks of them; operands without a layout are not distributed.
void compare(const std::string& what, const Function& f, const Tensors& whole, const std::vector<LayoutPtr>& layouts,
             std::uint64_t seed, bool second_order = false, double tolerance = 1e-12) {
  Tensors mine;
  for (std::size_t i = 0; i < whole.size(); ++i)
    mine.push_back(whole[i] && layouts[i] ? part_of(whole[i], layouts[i]) : whole[i]);
  const auto expected = run_case(f, whole, seed, second_order), found = run_case(f, mine, seed, second_order);
  require(found.y.layout() && found.y.layout()->global == expected.y.shape(), "[test] {}: {} for {}", what, found.y, expected.y);
  require_part(what + ": value", found.y, expected.y, tolerance);
  for (std::size_t i = 0; i < found.gradients.size(); ++i) {
    require_part(fmt::format("{}: gradient {}", what, i), found.gradients[i], expected.gradients[i], tolerance);
    if (second_order)
      require_part(fmt::format("{}: second derivative {}", what, i), found.second[i], expected.second[i], 100 * tolerance);
  }
}

// In float32, which has other kernels, only values and gradients.
void compare_products(const char* name, int cases, ProductCase (*make)(Dice&), DType dtype = DType::float64) {
  for (const int size : {2, 3, 4, 6, 8, 12})
    check_on_ranks(size, name, [&](const Communicator& comm) {
      for (int i = 0; i < cases; ++i) {
        const auto seed = static_cast<std::uint64_t>(comm.size() * 1000 + i);
        Dice dice(seed);
        const auto product = make(dice);
        auto split = random_split(comm, product, dice);
        const bool second_order = i % 6 == 0 && dtype == DType::float64;
        Tensors whole{global_tensor(product.x, seed, {}, dtype), global_tensor(product.w, seed + 1, {}, dtype),
                      product.bias ? global_tensor({product.out}, seed + 2, {}, dtype) : Tensor()};
        // Second derivatives need gradients with a layout, which can be summed over ranks.
        if (second_order && !split.w) split.w = replicated_layout(split.grid, product.w);
        if (second_order && !split.bias) split.bias = replicated_layout(split.grid, {product.out});
        const auto what = fmt::format("{} {}, {}: x {}, w {}, rank {}", name, i, split.scheme, to_string(*split.x),
                                      split.w ? to_string(*split.w) : to_string(product.w), comm.rank());
        const auto run = [&](const Tensors& in) { return product.run(in, in[0].layout() ? split.outputs : SplitOutputs{}); };
        compare(what, run, whole, {split.x, split.w, split.bias}, seed, second_order, dtype == DType::float64 ? 1e-12 : 2e-4);
      }
    });
}

}  // namespace

TEST_CASE("channels: convolutions split every way") { compare_products("conv", 150, random_conv_product); }
TEST_CASE("channels: transposed convolutions split every way") {
  compare_products("conv_transpose", 60, random_conv_transpose_product);
}
TEST_CASE("channels: linear layers split every way") { compare_products("linear", 60, random_linear_product); }

TEST_CASE("channels: products in float32, split every way") {
  compare_products("conv", 60, random_conv_product, DType::float32);
  compare_products("conv_transpose", 30, random_conv_transpose_product, DType::float32);
  compare_products("linear", 30, random_linear_product, DType::float32);
}

TEST_CASE("channels: in 16 bits, with parameters in float32") {
  check_on_ranks(4, "half", [](const Communicator& comm) {
    const auto grid = make_grid(comm, {.depth = 2, .channel = 2});
    const Shape shape{2, 6, 3, 3, 8}, kernel{6, 3, 3, 3, 8};
    const auto x = cast(global_tensor(shape, 1, {}, DType::float32), DType::bfloat16);
    const auto w = global_tensor(kernel, 2, {}, DType::float32), b = global_tensor({6}, 3, {}, DType::float32);
    const auto layer = [](const Tensors& t) {
      return conv(t[0], t[1], t[2], {.padding = 1, .activation = Activation::leaky_relu(0.5)});
    };
    const auto sum_of = [&](const Tensors& t) {
      Tape tape;
      const auto y = layer(t);
      auto g = tape.vjp({y}, {constant(ones(y.shape(), y.dtype())).with_layout(y.layout())}, t);
      g.push_back(y);
      return g;
    };
    const auto expected = sum_of({x, w, b});
    for (const int split : {-1, 0, 4, 5}) {
      auto of_x = split_layout(grid, shape, {-1, 1, -1, -1, 4}), of_w = split_layout(grid, kernel, {-1, -1, -1, -1, split % 5});
      if (split == 5) of_x = with_cuts(of_x, 4, {0, 8, 8}), of_w = with_cuts(of_w, 0, {0, 6, 6});  // a rank without channels
      const auto found = sum_of({part_of(x, of_x), part_of(w, of_w), b});
      require(found[1].dtype() == DType::float32 && found[3].dtype() == DType::bfloat16, "[test] {}, {}", found[1], found[3]);
      for (std::size_t i = 0; i < found.size(); ++i) {
        const auto whole = cast(expected[i], DType::float64), part = cast(found[i], DType::float64);
        require_close(fmt::format("{} of weights split at {}", i, split), part,
                      part.layout() ? part_of(whole, part.layout()) : whole, 0.05);
      }
    }
  });
}

namespace {

// A layer of x with 6 channels and of parameters with 6 channels, on grids with axes depth and channel.
struct LayerOfChannels {
  const char* name;
  int parameters;
  Function run;
};

std::vector<LayerOfChannels> layers() {
  const auto leaky = Activation::leaky_relu(0.3);
  return {{"bias and activation", 1, [=](const Tensors& t) { return bias_activation(t[0], t[1], leaky); }},
          {"batch norm", 2, [=](const Tensors& t) { return batch_norm(t[0], t[1], t[2], {.activation = leaky}).y; }},
          {"batch norm of a rank's samples", 2,
           [](const Tensors& t) { return batch_norm(t[0], t[1], t[2], {.statistics = StatisticsOver::spatial_group}).y; }},
          {"instance norm", 2, [=](const Tensors& t) { return group_norm(t[0], t[1], t[2], {.activation = leaky}); }},
          {"group norm", 2, [](const Tensors& t) { return group_norm(t[0], t[1], t[2], {.groups = 3}); }},
          {"average pool", 0,
           [=](const Tensors& t) { return avg_pool(t[0], {.kernel = 3, .stride = 2, .padding = Padding::sides(1, 0)}, leaky); }},
          {"max pool", 0, [](const Tensors& t) { return max_pool(t[0], {.kernel = 2, .stride = 2}); }},
          {"upsample", 0,
           [](const Tensors& t) {
             return upsample_by(t[0], {2, 1.5, 1}, Interpolation::linear);
           }},
          {"global average pool", 0, [](const Tensors& t) { return global_avg_pool(t[0]); }},
          {"flatten", 0, [](const Tensors& t) { return flatten(t[0]); }}};
}

}  // namespace

TEST_CASE("channels: norms, pools, biases, upsampling") {
  const Shape shape{2, 6, 3, 4, 6};
  for (const auto& [depth, channel] : std::vector<std::pair<int, int>>{{1, 2}, {1, 3}, {2, 2}, {2, 3}, {1, 4}, {3, 4}})
    check_on_ranks(depth * channel, "layers", [&, depth = depth, channel = channel](const Communicator& comm) {
      const auto grid = make_grid(comm, {.depth = depth, .channel = channel});
      // Cuts between groups of two channels; the last of four ranks has no channels.
      const auto cuts = channel == 2 ? Rows{0, 2, 6} : channel == 3 ? Rows{0, 2, 4, 6} : Rows{0, 2, 4, 6, 6};
      const auto x = with_cuts(activation_layout(grid, shape), 4, cuts);
      const auto split = with_cuts(split_layout(grid, {6}, {-1, -1, -1, -1, 0}), 0, cuts), same = replicated_layout(grid, {6});
      for (const auto& layer : layers())
        for (const auto& of_parameters : {LayoutPtr(), same, split}) {
          if (layer.parameters == 0 && of_parameters) continue;
          Tensors whole{global_tensor(shape, 1)};
          std::vector<LayoutPtr> layouts{x};
          for (int i = 0; i < layer.parameters; ++i) {
            whole.push_back(global_tensor({6}, static_cast<std::uint64_t>(i) + 2));
            layouts.push_back(of_parameters);
          }
          const bool second_order = layer.parameters == 0 || of_parameters;
          compare(fmt::format("{}, {} x {}, rank {}", layer.name, depth, channel, comm.rank()), layer.run, whole, layouts, 7,
                  second_order, 1e-11);
        }
      // The statistics of a norm can be passed to it, as in evaluation.
      const auto gamma = global_tensor({6}, 2), beta = global_tensor({6}, 3);
      const auto mine = part_of(global_tensor(shape, 1), x);
      const auto found = batch_norm(mine, gamma, beta);
      require(found.count == 144, "[test] {} rows", found.count);
      require_close("normalise", normalise(mine, found.statistics, gamma, beta), found.y);
    });
}

namespace {

// x: [N, D, H, W, 2]; the layout of its weight selects the scheme of each product.
Tensor network(const Tensors& t) {
  auto y = conv(t[0], t[1], t[2], {.padding = 1, .activation = Activation::leaky_relu(0.2)});
  y = batch_norm(y, t[3], t[4], {.activation = Activation::leaky_relu(0.1)}).y;
  y = avg_pool(y, {.kernel = 2, .stride = 2});
  y = conv(y, t[5], t[6], {.stride = 2, .padding = Padding::sides(1, 0), .activation = Activation::leaky_relu(0.3)});
  y = group_norm(y, t[7], t[8]);
  y = conv(y, t[9], {.groups = 5});
  y = conv_transpose(y, t[10], {.stride = 2});
  y = linear(global_avg_pool(y), t[11], t[12], Activation::leaky_relu(0.5));
  return linear(y, t[13], t[14]);
}

const Shape network_input{3, 8, 6, 5, 2};
const std::vector<Shape> network_parameters{
    {7, 3, 3, 3, 2}, {7}, {7}, {7}, {5, 2, 2, 2, 7}, {5}, {5}, {5}, {10, 1, 1, 1, 1}, {10, 2, 1, 2, 6}, {9, 6}, {9}, {4, 9}, {4}};

// One layout for each parameter: filters, then channels in partial sums, cut groups, summed groups, features of both kinds.
std::vector<LayoutPtr> network_layouts(const GridPtr& grid) {
  const std::vector<int> dimensions{0, 0, 0, -1, 4, -1, -1, -1, 0, 0, 0, -1, 1, -1};
  std::vector<LayoutPtr> layouts;
  for (std::size_t i = 0; i < dimensions.size(); ++i)
    layouts.push_back(split_layout(grid, network_parameters[i], {-1, -1, -1, -1, dimensions[i]}));
  // Cuts between groups of two filters.
  auto cuts = balanced_cuts(5, grid->extents[4]);
  for (auto& cut : cuts) cut *= 2;
  for (const std::size_t i : {8, 9}) layouts[i] = with_cuts(layouts[i], 0, cuts);
  return layouts;
}

struct NetworkGrid {
  int sample, depth, channel;
};
constexpr std::array network_grids{NetworkGrid{1, 1, 2}, NetworkGrid{1, 1, 3}, NetworkGrid{1, 2, 2}, NetworkGrid{3, 1, 2},
                                   NetworkGrid{2, 2, 2}, NetworkGrid{2, 2, 3}, NetworkGrid{1, 3, 4}, NetworkGrid{1, 1, 6}};

void on_network_grids(const std::function<void(const GridPtr&, const std::string& what)>& body) {
  for (const auto& [sample, depth, channel] : network_grids)
    check_on_ranks(sample * depth * channel, "network", [&, s = sample, d = depth, c = channel](const Communicator& comm) {
      body(make_grid(comm, {.sample = s, .depth = d, .channel = c}), fmt::format("{} x {} x {}, rank {}", s, d, c, comm.rank()));
    });
}

// Twenty steps of Adam; the loss is a mean of squares. With the usual epsilon, gradients close to zero, such as those of a bias
// that a norm cancels, would show their rounding.
void train(const Tensor& x, Parameters& parameters) {
  parameters.pack();
  Adam adam(parameters, {.learning_rate = 0.01, .epsilon = 1e-4});
  for (int step = 0; step < 20; ++step) {
    Tape tape(parameters);
    Tensors in{x};
    for (const auto& p : parameters.tensors()) in.push_back(p);
    adam.step(tape.gradient(mean(square(network(in)))));
  }
}

}  // namespace

TEST_CASE("channels: a network, every product in a scheme of its own") {
  on_network_grids([](const GridPtr& grid, const std::string& what) {
    Tensors whole{global_tensor(network_input, 1)};
    for (std::size_t i = 0; i < network_parameters.size(); ++i) whole.push_back(global_tensor(network_parameters[i], i + 2));
    auto layouts = network_layouts(grid);
    layouts.insert(layouts.begin(), split_layout(grid, network_input, {0, 1, 2, 3, -1}));
    compare(what, network, whole, layouts, 7, false, 1e-10);
  });
}

TEST_CASE("channels: a network of split weights, trained, has the weights of one rank") {
  Parameters whole;
  for (std::size_t i = 0; i < network_parameters.size(); ++i)
    whole.add(fmt::format("p{}", i), global_tensor(network_parameters[i], i + 2), true);
  train(constant(global_tensor(network_input, 1)), whole);
  on_network_grids([&](const GridPtr& grid, const std::string& what) {
    const auto layouts = network_layouts(grid);
    Parameters mine;
    for (std::size_t i = 0; i < layouts.size(); ++i)
      mine.add(fmt::format("p{}", i), global_tensor(network_parameters[i], i + 2, layouts[i]), true);
    train(constant(global_tensor(network_input, 1, split_layout(grid, network_input, {0, 1, 2, 3, -1}))), mine);
    for (std::size_t i = 0; i < layouts.size(); ++i)
      require_part(fmt::format("{}: parameter {}", what, i), mine[i].value.with_layout(layouts[i]), whole[i].value, 1e-10);
  });
}

TEST_CASE("channels: how a product runs is told, and what cannot run is refused by name") {
  check_on_ranks(4, "refusals", [](const Communicator& comm) {
    const auto expect = [](const std::string& start, const std::function<void()>& body) {
      const auto text = error_text(body);
      require(text.starts_with(start), "[test] '{}' instead of '{}'", text, start);
    };
    const auto grid = make_grid(comm, {.depth = 2, .channel = 2}),
               other = make_grid(comm.subgroup(std::vector<int>{comm.rank()}), {});
    const auto tensor = [&](const Shape& shape, int depth, int channel, const Rows& cuts = {}) {
      auto layout = split_layout(grid, shape, {-1, depth, -1, -1, channel});
      if (!cuts.empty()) layout = with_cuts(layout, channel, cuts);
      return global_tensor(shape, 1, layout);
    };
    const Shape shape{1, 4, 3, 3, 4}, kernel{6, 1, 1, 1, 4};
    const auto x = tensor(shape, 1, 4), w = tensor(kernel, -1, 0), b = tensor({6}, -1, 0);
    const auto tells = [&](const Tensor& in, const Tensor& weight, ChannelSplit expected, const ProductAttributes& a = {}) {
      const auto found = channel_splits(in, weight, a);
      require(found.size() == 5 && found[4] == expected && found[1] == ChannelSplit::none, "[test] {} instead of {}",
              name_of(found[4]), name_of(expected));
    };
    tells(x, w, ChannelSplit::filters);
    tells(x, tensor(kernel, -1, 4), ChannelSplit::channels);
    tells(x, global_tensor(kernel, 1), ChannelSplit::channels);
    tells(tensor(shape, 1, -1), global_tensor(kernel, 1), ChannelSplit::none);
    tells(tensor(shape, 1, -1), global_tensor(kernel, 1), ChannelSplit::filters, {.outputs = {.axis = 4}});
    tells(x, global_tensor({4, 1, 1, 1, 2}, 1), ChannelSplit::groups, {.groups = 2});
    tells(x, tensor({4, 1, 1, 1, 6}, -1, 4), ChannelSplit::filters, {.transposed = true});

    expect("[conv] the cut of the input at channel 1 is inside a group of 2; cut between groups", [&] {
      conv(tensor(shape, 1, 4, {0, 1, 4}), zeros({4, 1, 1, 1, 2}), {.groups = 2});
    });
    expect("[conv] the cut of the weight at channel 2 is inside a group of 3; cut between groups", [&] {
      conv(tensor(shape, 1, -1), tensor({6, 1, 1, 1, 2}, -1, 0, {0, 2, 6}), {.groups = 2});
    });
    expect("[conv] the weight's groups are cut at 0|6|6, which does not fit 0|3|6", [&] {
      conv(x, tensor({6, 1, 1, 1, 2}, -1, 0, {0, 6, 6}), {.groups = 2});
    });
    expect("[conv] dimension 4 of the weight of a grouped product is split", [&] {
      conv(x, tensor({6, 1, 1, 1, 2}, -1, 4), {.groups = 2});
    });
    expect("[conv] dimension 1 of the weight is split", [&] { conv(x, tensor({6, 2, 1, 1, 4}, -1, 1)); });
    expect("[conv] the weight's inputs are cut at 0|1|4, which does not fit 0|2|4", [&] {
      conv(x, tensor(kernel, -1, 4, {0, 1, 4}));
    });
    expect("[conv] the outputs are cut at 0|1|6, which does not fit 0|3|6", [&] {
      conv(x, w, b, {}, {.axis = 4, .cuts = {0, 1, 6}});
    });
    expect("[conv] cuts 0, 7 do not divide 6", [&] { conv(x, zeros(kernel), {}, {.axis = 4, .cuts = {0, 7}}); });
    expect("[conv] the outputs cannot be split along grid axis depth, which splits dimension 1",
           [&] { conv(x, w, b, {}, {.axis = 1}); });
    expect("[conv] outputs are to be split along axis 5 of a grid of 5", [&] { conv(x, w, b, {}, {.axis = 5}); });
    expect("[conv] two grid axes, depth and channel, split the input channels",
           [&] { conv(tensor(shape, -1, 4), tensor(kernel, 4, -1)); });
    expect("[conv] two grid axes, depth and channel, split the output channels",
           [&] { conv(tensor(shape, -1, 4), tensor(kernel, 0, -1), {}, {.axis = 4}); });
    expect("[conv] weight has 5 input channels, input has 4", [&] { conv(x, zeros({6, 1, 1, 1, 5})); });
    expect("[conv] input and parameter are on process grids of different ranks",
           [&] { conv(x, zeros(kernel).with_layout(replicated_layout(other, kernel))); });
    expect("[product] outputs of a plain tensor cannot be split", [&] { conv(zeros(shape), zeros(kernel), {}, {.axis = 0}); });
    expect("[channel_splits] needs a distributed tensor", [&] { channel_splits(zeros(shape), zeros(kernel)); });
    expect("[group_norm] the cut at channel 1 is inside a group of 2", [&] {
      group_norm(tensor(shape, 1, 4, {0, 1, 4}), ones({4}), ones({4}), {.groups = 2});
    });
    expect("[group_norm] 4 channels are not 3 groups", [&] { group_norm(x, ones({4}), ones({4}), {.groups = 3}); });
    expect("[batch_norm] a parameter has 3 channels, the input 4", [&] { batch_norm(x, ones({3}), ones({4})); });

    Layout share = *replicated_layout(grid, shape);
    share.axes[4].placement = Placement::partial;
    const auto s = global_tensor(shape, 1, std::make_shared<Layout>(share));
    expect("[conv] of a partial sum", [&] { conv(s, w); });
    expect("[bias_activation] of a partial sum", [&] { bias_activation(s, {}, Activation::relu); });
    // More ranks than channels are allowed.
    require(conv(x, tensor({1, 1, 1, 1, 4}, -1, 0)).layout()->global == Shape{1, 4, 3, 3, 1}, "[test] one filter on two ranks");
  });
}
