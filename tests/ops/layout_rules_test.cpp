// Layouts of the results of ordinary ops on distributed tensors, tested on one rank: these ops do not communicate.

#include "ops/layout_rules.h"

#include <doctest/doctest.h>

#include "ops/conv/conv.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/loss/loss.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"

using namespace mpigrad;

namespace {

constexpr int whole = -1, share = -2;

std::shared_ptr<const GridShape> grid(int rank = 1) {
  auto shape = std::make_shared<GridShape>();
  shape->names = {"sample", "depth"};
  shape->extents = {2, 2};
  shape->rank = rank;
  return shape;
}
const std::shared_ptr<const GridShape>& the_grid() {
  static const auto shared = grid();
  return shared;
}

// For each grid axis: the dimension that it splits, whole (replicated) or share (partial sum).
LayoutPtr layout(const Shape& global, const std::vector<int>& axes, const std::shared_ptr<const GridShape>& on = the_grid()) {
  auto result = std::make_shared<Layout>();
  result->grid = on;
  result->global = global;
  for (const int dimension : axes) {
    if (dimension == whole) result->axes.push_back({Placement::replicated, -1, {}});
    else if (dimension == share) result->axes.push_back({Placement::partial, -1, {}});
    else result->axes.push_back({Placement::split, dimension, balanced_cuts(global[dimension], 2)});
  }
  return result;
}

// Rank 1 of 2 x 2 has the first block along "sample" and the second along "depth".
Tensor distributed(const Shape& global, const std::vector<int>& axes, double value = 1) {
  const auto of = layout(global, axes);
  return full(of->box().extents(), value).with_layout(of);
}

void check_layout(const Tensor& x, const Shape& global, const std::vector<int>& axes) {
  REQUIRE(x.layout());
  INFO(to_string(x));
  CHECK(*x.layout() == *layout(global, axes));
  CHECK(x.shape() == x.layout()->box().extents());
}

template <class F>
void check_refused(const F& f, const std::string& words) {
  try {
    f();
    FAIL_CHECK("not refused: ", words);
  } catch (const Error& error) {
    const std::string text = error.what();
    INFO(text);
    CHECK(text.find(words) != std::string::npos);
    CHECK(text.starts_with("["));
  }
}

}  // namespace

TEST_CASE("layouts: the text of a distributed tensor") {
  CHECK(to_string(distributed({5, 4}, {0, whole})) == "float32 [3, 4] of [5, 4] sample: split dim 0 at 0|3|5, depth: replicated");
  CHECK(to_string(distributed({}, {share, whole})) == "float32 [] of [] sample: partial sum, depth: replicated");
  CHECK_THROWS_AS(ones({2, 4}).with_layout(layout({5, 4}, {0, whole})), Error);
}

TEST_CASE("layouts: elementwise ops keep them") {
  const auto x = distributed({5, 6, 4}, {0, 1}), y = distributed({5, 6, 4}, {0, 1}, 2);
  check_layout(exp(x), {5, 6, 4}, {0, 1});
  check_layout(x + y, {5, 6, 4}, {0, 1});
  check_layout(x * y - y / x, {5, 6, 4}, {0, 1});
  check_layout(2 * x + 1, {5, 6, 4}, {0, 1});
  check_layout(where(less(x, y), x, y), {5, 6, 4}, {0, 1});
  check_layout(cast(x, DType::float64), {5, 6, 4}, {0, 1});
  check_layout(distributed({3}, {whole, whole}) * 3, {3}, {whole, whole});
}

TEST_CASE("layouts: broadcasting aligns at the right") {
  const auto x = distributed({5, 6, 4}, {0, 1});
  check_layout(x * constant(full({}, 2)), {5, 6, 4}, {0, 1});
  check_layout(distributed({6, 4}, {whole, 0}) + distributed({6, 4}, {whole, 0}), {6, 4}, {whole, 0});
  check_refused([&] { x + distributed({5, 6, 4}, {1, 0}); }, "laid out differently over grid axis sample; redistribute one");
  check_layout(x + constant(distributed({4}, {whole, whole})), {5, 6, 4}, {0, 1});
}

TEST_CASE("layouts: blocks of one index do not broadcast") {
  const auto x = constant(distributed({2, 4}, {0, whole})), y = constant(distributed({2, 4}, {whole, 0}));
  check_refused([&] { x + y; }, "one operand is split over grid axis");
}

TEST_CASE("layouts: mixing a distributed tensor with a local one is refused") {
  const auto x = distributed({5, 4}, {0, whole});
  check_refused([&] { x + ones({3, 4}); }, "[add] mixes a distributed tensor with a local one");
  check_refused([&] { x* constant(ones({3, 4})); }, "[multiply] mixes a distributed tensor with a local one");
  check_refused([&] { x* full({}, 2); }, "mixes a distributed tensor with a local one");
  const auto other = ones({3, 4}).with_layout(layout({5, 4}, {0, whole}, grid()));
  check_refused([&] { x + other; }, "different process grids");
}

TEST_CASE("layouts: sums over a split dimension are shares, means divide by the global extent") {
  const auto x = distributed({5, 6, 4}, {0, 1});
  check_layout(sum(x, {2}), {5, 6}, {0, 1});
  check_layout(sum(x, {0}), {6, 4}, {share, 0});
  check_layout(sum(x, {1}), {5, 4}, {0, share});
  check_layout(sum(x, {1}, true), {5, 1, 4}, {0, share});
  check_layout(sum(x), {}, {share, share});
  CHECK(sum(x).item() == 3 * 3 * 4);
  CHECK(mean(x).item() == doctest::Approx(36.0 / (5 * 6 * 4)));
  check_layout(mean(x, {0}), {6, 4}, {share, 0});
  CHECK(mean(x, {0}).to_vector()[0] == doctest::Approx(3.0 / 5));
  check_layout(dot(x, x), {}, {share, share});
  check_layout(mse(x, constant(x)), {}, {share, share});
}

TEST_CASE("layouts: a rank with one element of a split dimension is like the others") {
  const auto x = distributed({2, 2, 4}, {0, 1});  // [1, 1, 4] here
  check_layout(sum(x, {0}), {2, 4}, {share, 0});
  check_layout(sum(x, {1}), {2, 4}, {0, share});
  check_layout(unsqueeze(x, 0), {1, 2, 2, 4}, {1, 2});
  check_layout(unsqueeze(x, 1), {2, 1, 2, 4}, {0, 2});
  check_layout(squeeze(unsqueeze(x, 1), {1}), {2, 2, 4}, {0, 1});
  const auto y = distributed({3, 1, 2}, {whole, 2});
  check_layout(squeeze(y, {1}), {3, 2}, {whole, 1});
  check_layout(squeeze(slice(y, 0, 0, 1), {1}), {1, 2}, {whole, 1});
  check_refused([&] { squeeze(x, {1}); }, "dimension 1, which is split");
  check_layout(reshape(x, {1, 1, 2, 2}), {2, 2, 2, 2}, {0, 1});
}

TEST_CASE("layouts: linear functions keep shares, others are refused") {
  const auto s = distributed({3}, {share, whole}), t = distributed({3}, {share, whole}),
             same = constant(distributed({3}, {whole, whole}, 2));
  check_layout(s + t, {3}, {share, whole});
  check_layout(-s * 0.5 - t, {3}, {share, whole});
  check_layout(sum(s), {}, {share, whole});
  check_layout(cast(s, DType::float64), {3}, {share, whole});
  check_layout(s * same, {3}, {share, whole});
  check_layout(s / same, {3}, {share, whole});
  check_layout(s * constant(full({}, 3)), {3}, {share, whole});
  check_layout(reshape(s, {3, 1}), {3, 1}, {share, whole});
  check_refused([&] { s* t; }, "[multiply] is a product of partial sums");
  check_refused([&] { same / s; }, "[divide] divides by a partial sum");
  check_refused([&] { s + same; }, "write once() around it");
  check_refused([&] { s + 1; }, "[affine] adds a constant to a partial sum");
  check_refused([&] { s + constant(full({}, 1)); }, "[add] adds a constant to a partial sum");
  check_refused([&] { exp(s); }, "[exp] of a partial sum is not a partial sum of the result");
  check_refused([&] { square(s); }, "make it whole with redistribute() or total() first");
  {
    const Tape tape;  // total() would lose the gradient
    check_refused([&] { square(s); }, "make it whole with redistribute() to a replicated layout first");
  }
  check_refused([&] { logsumexp(s, {0}); }, "[logsumexp] of a partial sum");
  check_refused([&] { max(s); }, "[max/min] of a partial sum");
  check_refused([&] { less(s, t); }, "[less] of a partial sum");
  check_refused([&] { softmax(s); }, "[softmax] of a partial sum");
  check_refused([&] { cast(s, DType::int32); }, "[cast] of a partial sum");
}

TEST_CASE("layouts: what needs a whole dimension refuses a split one by name") {
  const auto x = distributed({5, 6, 4}, {0, 1});
  check_layout(max(x, {2}), {5, 6}, {0, 1});
  check_layout(argmax(x, -1), {5, 6}, {0, 1});
  check_layout(softmax(x), {5, 6, 4}, {0, 1});
  check_layout(log_softmax(x), {5, 6, 4}, {0, 1});
  check_layout(logsumexp(x, {-1}), {5, 6}, {0, 1});
  const std::string hint = "which is split; redistribute it so that the dimension is whole on every rank";
  check_refused([&] { max(x, {0}); }, "[max/min] over dimension 0, " + hint);
  check_refused([&] { logsumexp(x, {0}); }, "[logsumexp] over dimension 0, " + hint);
  check_refused([&] { argmax(x, 1); }, "[argmax] over dimension 1, " + hint);
  const auto z = distributed({4, 6}, {whole, 1});
  check_refused([&] { softmax(z); }, "[softmax] across dimension 1, " + hint);
  check_refused([&] { flip(z, {1}); }, "[flip] across dimension 1, " + hint);
  check_refused([&] { slice(z, 1, 0, 2); }, "[slice] across dimension 1, " + hint);
  check_refused([&] { pad(z, {0, 1}, {0, 0}); }, "[pad] across dimension 1, " + hint);
  check_refused([&] { concatenate({z, z}, 1); }, "[concatenate] across dimension 1, " + hint);
  check_refused([&] { reshape(x, {9, 4}); }, "[reshape] merges or cuts dimension 0, " + hint);
}

TEST_CASE("layouts: views move split dimensions along") {
  const auto x = distributed({5, 6, 4}, {0, 1});
  check_layout(permute(x, {2, 0, 1}), {4, 5, 6}, {1, 2});
  check_layout(slice(x, 2, 1, 3), {5, 6, 2}, {0, 1});
  check_layout(pad(x, {0, 0, 1}, {0, 0, 2}), {5, 6, 7}, {0, 1});
  check_layout(concatenate({x, x}, 2), {5, 6, 8}, {0, 1});
  check_layout(flip(x, {2}), {5, 6, 4}, {0, 1});
  check_layout(reshape(x, {3, 3, 2, 2}), {5, 6, 2, 2}, {0, 1});
  check_layout(reshape(distributed({5, 6, 4}, {0, whole}), {3, -1}), {5, 24}, {0, whole});
  const auto labels = distributed({5, 6}, {0, 1});
  check_layout(one_hot(cast(labels, DType::int64), 3), {5, 6, 3}, {0, 1});
}

TEST_CASE("layouts: matrices and convolutions want whole operands") {
  const auto a = distributed({3, 4}, {whole, whole});
  check_layout(matmul(a, distributed({4, 2}, {whole, whole})), {3, 2}, {whole, whole});
  check_refused(
      [&] {
        matmul(distributed({6, 4}, {0, whole}), distributed({4, 2}, {whole, whole}));
      },
      "[matmul] across a split dimension");
  check_refused([&] { matmul(a, ones({4, 2})); }, "[matmul] across a split dimension or of a partial sum");
  check_refused(
      [&] {
        local::linear(distributed({6, 4}, {0, whole}), ones({2, 4}));
      },
      "[linear] is not defined on a distributed tensor");
  check_refused(
      [&] {
        local::conv(distributed({2, 4, 4, 4, 1}, {0, 1}), ones({2, 1, 1, 1, 1}));
      },
      "[conv] is not defined on a distributed tensor");
}

TEST_CASE("layouts: cross-entropy of a split batch is a share, but not its mean of weights") {
  const auto logits = distributed({6, 3}, {0, whole});
  const auto labels = constant(cast(distributed({6}, {0, whole}), DType::int64));
  const auto loss = cross_entropy(logits, labels);
  check_layout(loss, {}, {share, whole});
  CHECK(loss.item() == doctest::Approx(std::log(3.0) / 2));
  check_refused([&] { cross_entropy(logits, labels, {.ignore_index = 0}); },
                "[layout] this grid has no communicators to add over");
}

TEST_CASE("layouts: the tape works on local tensors and gives gradients the layout of what they belong to") {
  const auto x = distributed({5, 6}, {0, 1}, 3);
  Tape tape;
  const auto y = sum(square(x) * 2);
  for (const auto& entry : tape.entries())
    for (const auto& in : entry.inputs) CHECK((!in || !in.layout()));
  const auto g = tape.gradient(y, {x})[0];
  check_layout(g, {5, 6}, {0, 1});
  CHECK(g.to_vector() == std::vector<double>(9, 12));
}

TEST_CASE("layouts: random numbers depend on the global place alone") {
  const Shape global{5, 6, 3};
  const auto everything = random_normal(global, {.key = 4, .stream = 2}).to_vector();
  const auto mask = dropout(ones(global), 0.5, {.key = 9}).to_vector();
  std::vector<double> assembled(everything.size()), assembled_mask(everything.size());
  for (int rank = 0; rank < 4; ++rank) {
    const auto of = layout(global, {0, 1}, grid(rank));
    const auto part = random_normal(global, {.key = 4, .stream = 2}, 0, 1, DType::float32, of);
    const auto part_mask = dropout(full(of->box().extents(), 1).with_layout(of), 0.5, {.key = 9});
    CHECK(part.layout() == of);
    const auto box = of->box();
    const auto values = part.to_vector(), kept = part_mask.to_vector();
    std::size_t at = 0;
    for (auto i = box.begin[0]; i < box.end[0]; ++i)
      for (auto j = box.begin[1]; j < box.end[1]; ++j)
        for (std::int64_t k = 0; k < 3; ++k, ++at) {
          const auto place = static_cast<std::size_t>((i * 6 + j) * 3 + k);
          assembled[place] = values[at], assembled_mask[place] = kept[at];
        }
  }
  CHECK(assembled == everything);
  CHECK(assembled_mask == mask);
}
