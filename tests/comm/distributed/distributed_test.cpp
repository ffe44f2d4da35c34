// Layers on distributed tensors: values and gradients for every grid and all cuts equal those of one rank; adjoint test and
// second order.

#include "comm/distributed/distributed.h"

#include <functional>
#include <set>
#include <string>

#include "comm/distributed/invariant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"
#include "tests/models/nn/layer_cases.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

Tensor scale_at(const Tensor& y, std::uint64_t seed) {
  const auto shape = y.layout() ? y.layout()->global : y.shape();
  return constant(global_tensor(shape, seed, y.layout(), y.dtype()));
}

struct Result {
  Tensor y;
  Tensors gradients, second;
};

// The loss is a random weighted sum of squares and values; second derivatives are those of a sum of squares of the gradients.
Result run_layer(const LayerCase& layer, const Tensors& in, std::uint64_t seed) {
  Tape tape;
  const auto y = layer.run(in);
  const auto loss = sum(y * scale_at(y, seed)) + sum(square(y) * scale_at(y, seed + 1));
  auto gradients = tape.gradient(loss, in, Record::yes);
  auto objective = sum(square(gradients[0]) * scale_at(gradients[0], seed + 2));
  for (std::size_t i = 1; i < gradients.size(); ++i) {
    const auto term = sum(square(gradients[i]));
    objective = objective + (objective.layout() ? once(term, objective) : term);
  }
  auto second = tape.gradient(objective, in);
  return {y, std::move(gradients), std::move(second)};
}

void compare(const Communicator& comm, const LayerCase& layer, std::uint64_t seed, Dice& dice, DType dtype) {
  const bool exact = dtype == DType::float64;
  const double first = exact ? 1e-12 : 2e-4, second = exact ? 1e-10 : 2e-2;
  const auto layout = random_layout(comm, dice, layer.input);
  const auto parameters = parameters_of(layer, seed, dtype);
  Tensors whole{global_tensor(layer.input, seed, {}, dtype)}, mine{global_tensor(layer.input, seed, layout, dtype)};
  whole.insert(whole.end(), parameters.begin(), parameters.end());
  mine.insert(mine.end(), parameters.begin(), parameters.end());
  const auto expected = run_layer(layer, whole, seed), found = run_layer(layer, mine, seed);
  const auto what = fmt::format("{} {}, {}, rank {}", layer.name, seed, to_string(*layout), comm.rank());
  require(found.y.layout() != nullptr, "[test] {} has no layout", what);
  require_close(what + ": value", found.y, part_of(expected.y, found.y.layout()), first);
  require_close(what + ": gradient of x", found.gradients[0], part_of(expected.gradients[0], layout), first);
  require_close(what + ": second derivative of x", found.second[0], part_of(expected.second[0], layout), second);
  for (std::size_t i = 1; i < mine.size(); ++i) {
    require_close(fmt::format("{}: gradient of parameter {}", what, i), found.gradients[i], expected.gradients[i], first);
    require_close(fmt::format("{}: second derivative of parameter {}", what, i), found.second[i], expected.second[i], second);
  }
}

void compare_many(const char* name, int cases, const std::function<LayerCase(Dice&)>& make, DType dtype = DType::float64) {
  for (const int size : {1, 2, 3, 4, 6, 7, 8})
    check_on_ranks(size, name, [&](const Communicator& comm) {
      for (int i = 0; i < (comm.size() == 1 ? cases / 6 : cases); ++i) {
        const auto seed = static_cast<std::uint64_t>(comm.size() * 1000 + i);
        Dice dice(seed);
        const auto layer = make(dice);
        compare(comm, layer, seed, dice, dtype);
      }
    });
}

}  // namespace

TEST_CASE("distributed: convolution") { compare_many("conv", 60, random_conv); }
TEST_CASE("distributed: transposed convolution") { compare_many("conv_transpose", 60, random_conv_transpose); }
TEST_CASE("distributed: average pooling") {
  compare_many("avg_pool", 40, [](Dice& dice) { return random_pool(dice, false); });
}
TEST_CASE("distributed: max pooling") {
  compare_many("max_pool", 40, [](Dice& dice) { return random_pool(dice, true); });
}
TEST_CASE("distributed: batch norm") { compare_many("batch_norm", 40, batch_norm_layer); }
TEST_CASE("distributed: global average pooling, then a head") { compare_many("head", 40, global_avg_pool_layer); }
TEST_CASE("distributed: flatten and linear") { compare_many("flatten", 40, flatten_layer); }
TEST_CASE("distributed: adaptive pooling") {
  compare_many("adaptive_avg_pool", 30, [](Dice& dice) { return random_adaptive_pool(dice, false); });
  compare_many("adaptive_max_pool", 30, [](Dice& dice) { return random_adaptive_pool(dice, true); });
}
TEST_CASE("distributed: norms of rows, statistics, periodic shifts") {
  compare_many("row norms", 20, row_norm_layer);
  compare_many("statistics", 40, statistics_layer);
  compare_many("roll", 40, roll_layer);
}
TEST_CASE("distributed: a network") { compare_many("network", 12, network_layer); }

// Only here do the fast kernels get empty blocks, windows completely in padding and odd paddings.
TEST_CASE("distributed: float32") {
  compare_many("conv", 40, random_conv, DType::float32);
  compare_many("conv_transpose", 40, random_conv_transpose, DType::float32);
  compare_many(
      "avg_pool", 20, [](Dice& dice) { return random_pool(dice, false); }, DType::float32);
  compare_many(
      "max_pool", 20, [](Dice& dice) { return random_pool(dice, true); }, DType::float32);
  compare_many("batch_norm", 20, batch_norm_layer, DType::float32);
  compare_many("flatten", 20, flatten_layer, DType::float32);
}

TEST_CASE("distributed: adjoint and second order of every layer") {
  for (const int size : {1, 2, 3, 4, 7})
    check_on_ranks(size, "adjoint", [](const Communicator& comm) { check_layer_adjoints(comm, 4); });
}

namespace {

// First and second derivatives of a cross-entropy, and its value on all ranks.
struct LossResult {
  double value = 0;
  Tensor gradient, second;
};
LossResult run_loss(const Tensor& scores, const Tensor& labels, const CrossEntropyOptions& options, const Communicator& comm) {
  Tape tape;
  const auto loss = cross_entropy(scores, labels, options);
  const auto share = options.reduction == Reduction::none ? sum(loss * scale_at(loss, 4)) : loss;
  auto gradient = tape.gradient(share, {scores}, Record::yes)[0];
  auto second = tape.gradient(sum(square(gradient) * scale_at(gradient, 5)), {scores})[0];
  return {scores.layout() ? total(share, comm) : share.item(), std::move(gradient), std::move(second)};
}

// Labels from 0 to 3.
Tensor labels_of(const Shape& shape, const LayoutPtr& layout = {}) {
  return constant(cast(affine(global_tensor(shape, 6, layout), 2, 2), DType::int64));
}

LayoutPtr without_last(const LayoutPtr& layout) {
  Layout result = *layout;
  result.global = Shape(std::span(layout->global.begin(), static_cast<std::size_t>(layout->global.rank() - 1)));
  return std::make_shared<Layout>(std::move(result));
}

}  // namespace

TEST_CASE("distributed: cross-entropy with class weights and ignored labels is that of one rank, on every grid and cut") {
  const auto weights = from_vector({4}, {1, 0.5, 2, 0.25}, DType::float64);
  const std::vector<CrossEntropyOptions> kinds{{.weights = weights},
                                               {.ignore_index = 1},
                                               {.weights = weights, .ignore_index = 2},
                                               {.weights = weights, .ignore_index = 100}};
  for (const int size : {1, 2, 3, 4, 6})
    check_on_ranks(size, "cross_entropy", [&](const Communicator& comm) {
      Dice dice(static_cast<std::uint64_t>(comm.size()));
      for (int i = 0; i < 6; ++i) {
        const Shape shape = i % 2 == 0 ? Shape{7, 4} : Shape{3, 4, 5, 2, 4};
        LayoutPtr layout;
        if (shape.rank() == 5) layout = random_layout(comm, dice, shape);
        else layout = with_random_cuts(split_layout(make_grid(comm, {.sample = comm.size()}), shape, {0, -1, -1, -1}), dice);
        const auto of_labels = without_last(layout);
        const auto whole = global_tensor(shape, 3), mine = global_tensor(shape, 3, layout);
        for (auto options : kinds)
          for (const auto reduce : {Reduction::mean, Reduction::sum, Reduction::none}) {
            options.reduction = reduce;
            const auto expected = run_loss(whole, labels_of(of_labels->global), options, comm);
            // Weights may have a layout, too.
            if (options.weights && dice(0, 1) == 1) {
              Layout same = *layout;
              same.global = {4};
              for (auto& axis : same.axes) axis = {Placement::replicated, -1, {}};
              options.weights = weights.with_layout(std::make_shared<Layout>(std::move(same)));
            }
            const auto found = run_loss(mine, labels_of(of_labels->global, of_labels), options, comm);
            const auto what = fmt::format("{}, rank {}", to_string(*layout), comm.rank());
            require(std::abs(found.value - expected.value) <= 1e-13 * std::max(1.0, std::abs(expected.value)),
                    "[test] {}: {} not {}", what, found.value, expected.value);
            require_close(what + ": gradient", found.gradient, part_of(expected.gradient, layout), 1e-13);
            require_close(what + ": second derivative", found.second, part_of(expected.second, layout), 1e-13);
          }
      }
    });
}

TEST_CASE("distributed: a loss of split classes, of local labels or of weights that vary is refused by name") {
  check_on_ranks(2, "refusals", [](const Communicator& comm) {
    const auto grid = make_grid(comm, {.sample = 2});
    const auto expect = [](const std::string& start, const std::function<void()>& body) {
      const auto text = error_text(body);
      require(text.starts_with(start), "[test] '{}' instead of '{}'", text, start);
    };
    const auto layout = split_layout(grid, {4, 2}, {0, -1, -1, -1}), of_labels = split_layout(grid, {4}, {0, -1, -1, -1});
    const auto scores = global_tensor({4, 2}, 1, layout), labels = constant(zeros({2}, DType::int64)).with_layout(of_labels);
    const auto weights = ones({2}, DType::float64);
    const auto classes = split_layout(grid, {4, 2}, {1, -1, -1, -1});
    expect("[cross_entropy] the classes are split", [&] {
      negative_log_likelihood(global_tensor({4, 2}, 1, classes),
                              constant(zeros({4}, DType::int64)).with_layout(replicated_layout(grid, {4})));
    });
    expect("[cross_entropy] scores and labels are both distributed or both local",
           [&] { cross_entropy(scores, labels.without_layout(), {.weights = weights}); });
    expect("[cross_entropy] weights have the type of the scores", [&] { cross_entropy(scores, labels, {.weights = ones({2})}); });
    expect("[cross_entropy] one weight for each of 2 classes", [&] { cross_entropy(scores, labels, {.weights = ones({3})}); });
    expect("[cross_entropy] one weight for each of 2 classes", [&] {
      cross_entropy(scores, labels, {.weights = ones({2}, DType::float64).with_layout(split_layout(grid, {4}, {0, -1, -1, -1}))});
    });
  });
}

TEST_CASE("distributed: batch statistics of a rank, of a sample's ranks, of all") {
  check_on_ranks(4, "statistics", [](const Communicator& comm) {
    const auto grid = make_grid(comm, {.sample = 2, .depth = 2});
    const auto layout = with_cuts(activation_layout(grid, {3, 5, 2, 2, 2}), 1, {0, 4, 5});
    const auto whole = global_tensor(layout->global, 3), x = global_tensor(layout->global, 3, layout);
    const auto gamma = global_tensor({2}, 4), beta = global_tensor({2}, 5);
    const auto box = layout->box();
    const auto check = [&](StatisticsOver over, const Tensor& part, double count) {
      const auto found = batch_norm(x, gamma, beta, {.epsilon = 1e-3, .statistics = over});
      const auto [y, statistics] = local::norm(part, gamma, beta, 1e-3);
      require(found.count == count, "[test] count {}", found.count);
      require_close("mean", found.statistics.mean, statistics.mean);
      require_close("variance", found.statistics.variance, statistics.variance);
    };
    check(StatisticsOver::all, whole, 60);
    check(StatisticsOver::spatial_group, slice(whole, 0, box.begin[0], box.end[0]), static_cast<double>(box.extents()[0] * 20));
    check(StatisticsOver::batch_group, slice(whole, 1, box.begin[1], box.end[1]), static_cast<double>(box.extents()[1] * 12));
    check(StatisticsOver::local, x.without_layout(), static_cast<double>(box.elements()) / 2);
  });
}

TEST_CASE("distributed: dropout gives the same mask for every grid") {
  for (const int size : {2, 3, 4})
    check_on_ranks(size, "dropout", [](const Communicator& comm) {
      Dice dice(static_cast<std::uint64_t>(comm.size()));
      const auto layout = random_layout(comm, dice, {3, 4, 5, 6, 2});
      const auto whole = dropout(global_tensor(layout->global, 1), 0.7, {.key = 5, .stream = 2});
      require_close("dropout", dropout(global_tensor(layout->global, 1, layout), 0.7, {.key = 5, .stream = 2}),
                    part_of(whole, layout), 0);
    });
}

TEST_CASE("distributed: what a layer cannot do is refused by name") {
  check_on_ranks(2, "refusals", [](const Communicator& comm) {
    const auto expect = [](const char* start, const std::function<void()>& body) {
      const auto text = error_text(body);
      require(text.starts_with(start), "[test] '{}' instead of '{}'", text, start);
    };
    const auto grid = make_grid(comm, {.depth = 2});
    const auto w = zeros({2, 1, 1, 1, 2}), one = zeros({2});
    Layout share = *replicated_layout(grid, {1, 4, 4, 4, 2});
    share.axes[1].placement = Placement::partial;
    const auto s = zeros(share.global).with_layout(std::make_shared<Layout>(share));
    expect("[window] of a partial sum", [&] { conv(s, w); });
    expect("[window] of a partial sum", [&] { max_pool(s, {.kernel = 2}); });
    expect("[batch_norm] of a partial sum", [&] { batch_norm(s, one, one); });
    expect("[replicate] a parameter has to be replicated",
           [&] { parameter_for(zeros(share.global).with_layout(replicated_layout(grid, share.global)), s); });
    expect("[total] a plain tensor does not say over which ranks it is a partial sum", [] { total(sum(ones({2}))); });
    expect("[window] needs [N, D, H, W, C]", [&] { conv(zeros({4, 6}).with_layout(replicated_layout(grid, {4, 6})), w); });
    expect("[grid]", [&] { make_grid(comm, {.depth = 3}); });
  });
}
