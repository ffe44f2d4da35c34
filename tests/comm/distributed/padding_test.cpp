// Padding modes: the numbers of numpy.pad, and convolutions and pools of random paddings, split over ranks against the whole.

#include "comm/halos/padding.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <functional>

#include "comm/distributed/distributed.h"
#include "framework/engine/tape.h"
#include "ops/array/shapes.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/views.h"
#include "tests/support/all_tests.h"
#include "tests/support/distributed.h"
#include "tests/support/errors.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr auto none = PaddingMode::zeros, circular = PaddingMode::circular, replicate = PaddingMode::replicate,
               reflect = PaddingMode::reflect, symmetric = PaddingMode::symmetric;
using Numbers = std::vector<double>;
constexpr std::array modes{none, circular, replicate, reflect, symmetric};

// 1 to 12 in three rows of four.
Tensor rows() { return reshape(arange(12, DType::float64) + 1, {1, 1, 3, 4, 1}); }
Padding padding_of_rows(PaddingMode mode) { return Padding::sides({0, 2, 1}, {0, 1, 2}, mode); }

// Random paddings of a volume, never more than its modes allow.
Padding random_padding(Dice& dice, const Extent3& extent, std::int64_t most) {
  Padding p = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    p.low_mode[i] = modes[static_cast<std::size_t>(dice(0, 4))], p.high_mode[i] = modes[static_cast<std::size_t>(dice(0, 4))];
    p.low[i] = dice(0, std::min(most, extent[i] - 1)), p.high[i] = dice(0, std::min(most, extent[i] - 1));
  }
  return p;
}

struct Results {
  Tensor y;
  Tensors first, second;  // the gradient of sum y^2 u, and that of its products with random tensors
};
Results results_of(const std::function<Tensor(const Tensors&)>& f, const Tensors& in) {
  const auto like = [](const Tensor& x, std::uint64_t seed) {
    return global_tensor(x.layout() ? x.layout()->global : x.shape(), seed, x.layout());
  };
  Results r;
  Tape outer;
  {
    Tape tape;
    r.y = f(in);
    const auto squared = square(r.y);
    r.first = tape.vjp({squared}, {like(squared, 20)}, in);
  }
  Tensors along;
  for (std::size_t i = 0; i < in.size(); ++i) along.push_back(like(r.first[i], 30 + i));
  r.second = outer.vjp(r.first, along, in);
  return r;
}

// f of a random volume and random parameters on the whole and on blocks of a grid.
void check_split(const std::string& what, std::uint64_t seed, const GridExtents& extents, const Shape& shape,
                 const std::vector<Shape>& parameters, const std::function<Tensor(const Tensors&)>& f) {
  Tensors whole{global_tensor(shape, seed)};
  for (std::size_t i = 0; i < parameters.size(); ++i) whole.push_back(global_tensor(parameters[i], seed + 1 + i));
  const auto expected = results_of(f, whole);
  const int ranks = extents.sample * extents.depth * extents.height * extents.width * extents.channel;
  check_on_ranks(ranks, what, [&](const Communicator& comm) {
    Dice dice(seed);
    const auto grid = make_grid(comm, extents, seed % 2 == 0 ? Overlap::always : Overlap::never);
    const auto layout = with_random_cuts(activation_layout(grid, shape), dice);
    Tensors in{part_of(whole[0], layout)};
    for (std::size_t i = 1; i < whole.size(); ++i) in.push_back(whole[i].with_layout(replicated_layout(grid, whole[i].shape())));
    const auto found = results_of(f, in);
    require(found.y.layout()->global == expected.y.shape(), "[test] {}: {} for {}", what, found.y, expected.y);
    require_close(what, found.y, part_of(expected.y, found.y.layout()), 1e-12);
    for (std::size_t i = 0; i < in.size(); ++i) {
      const auto part = [&](const Tensor& x) { return i == 0 ? part_of(x, layout) : x; };
      require_close(fmt::format("{}: gradient {}", what, i), found.first[i], part(expected.first[i]), 1e-11);
      require_close(fmt::format("{}: second derivative {}", what, i), found.second[i], part(expected.second[i]), 1e-10);
    }
  });
}

}  // namespace

TEST_CASE("padding modes: the numbers of numpy.pad with wrap, edge, reflect and symmetric") {
  const auto padded = [](PaddingMode mode) { return pad(rows(), padding_of_rows(mode)).to_vector(); };
  CHECK(padded(circular) == Numbers{8, 5, 6, 7, 8, 5, 6, 12, 9, 10, 11, 12, 9, 10, 4, 1, 2, 3, 4, 1, 2,
                                    8, 5, 6, 7, 8, 5, 6, 12, 9, 10, 11, 12, 9, 10, 4, 1, 2, 3, 4, 1, 2});
  CHECK(padded(replicate) == Numbers{1, 1, 2, 3, 4, 4, 4, 1, 1, 2,  3,  4,  4,  4,  1, 1, 2,  3,  4,  4,  4,
                                     5, 5, 6, 7, 8, 8, 8, 9, 9, 10, 11, 12, 12, 12, 9, 9, 10, 11, 12, 12, 12});
  CHECK(padded(reflect) == Numbers{10, 9, 10, 11, 12, 11, 10, 6,  5, 6,  7,  8,  7,  6,  2, 1, 2, 3, 4, 3, 2,
                                   6,  5, 6,  7,  8,  7,  6,  10, 9, 10, 11, 12, 11, 10, 6, 5, 6, 7, 8, 7, 6});
  CHECK(padded(symmetric) == Numbers{5, 5, 6, 7, 8, 8, 7, 1, 1, 2,  3,  4,  4,  3,  1, 1, 2,  3,  4,  4,  3,
                                     5, 5, 6, 7, 8, 8, 7, 9, 9, 10, 11, 12, 12, 11, 9, 9, 10, 11, 12, 12, 11});
  // Rows: circular before, zeros after; columns: reflect before, replicate after.
  const auto mixed = Padding::sides({0, 1, 2}, {0, 1, 1}, {none, circular, reflect}, {none, none, replicate});
  CHECK(pad(rows(), mixed).to_vector() == Numbers{11, 10, 9, 10, 11, 12, 12, 3,  2,  1,  2, 3, 4, 4, 7, 6, 5, 6,
                                                  7,  8,  8, 11, 10, 9,  10, 11, 12, 12, 0, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("padding modes: numbers of convolutions, their adjoints and pools") {
  const Tensor w = reshape(arange(9, DType::float64) + 1, {1, 1, 3, 3, 1});
  struct Case {
    PaddingMode mode;
    Numbers conv, transposed, largest, sums;
  };
  const std::vector<Case> cases{{circular,
                                 {243, 240, 285, 258, 351, 348, 393, 366, 243, 240, 285, 258},
                                 {327, 300, 345, 342, 219, 192, 237, 234, 327, 300, 345, 342},
                                 {12, 12, 12, 12},
                                 {57, 63, 57, 63}},
                                {replicate,
                                 {159, 192, 237, 264, 315, 348, 393, 420, 399, 432, 477, 504},
                                 {43, 72, 99, 152, 135, 192, 237, 318, 443, 528, 591, 700},
                                 {6, 8, 10, 12},
                                 {24, 39, 72, 87}},
                                {reflect,
                                 {195, 216, 261, 270, 327, 348, 393, 402, 315, 336, 381, 390},
                                 {29, 71, 131, 75, 245, 540, 755, 410, 167, 361, 473, 253},
                                 {6, 8, 10, 12},
                                 {39, 51, 63, 75}}};
  for (const auto& one : cases) {
    INFO(name_of(one.mode));
    const Padding padding({0, 1, 1}, one.mode);
    CHECK(conv(rows(), w, {.padding = padding}).to_vector() == one.conv);
    CHECK(conv2d(squeeze(rows(), {1}), squeeze(w, {1}), {.padding = {1, one.mode}}).to_vector() == one.conv);
    CHECK(conv_transpose(rows(), w, {.padding = padding}).to_vector() == one.transposed);
    const PoolAttributes pool{.kernel = {1, 3, 3}, .stride = {1, 2, 2}, .padding = padding};
    CHECK(max_pool(rows(), pool).to_vector() == one.largest);
    const auto average = avg_pool(rows(), pool).to_vector();
    for (std::size_t i = 0; i < average.size(); ++i) CHECK(average[i] * 9 == doctest::Approx(one.sums[i]).epsilon(1e-14));
    CHECK(pool_outputs({1, 3, 4}, pool) == Extent3{1, 2, 2});
  }
}

TEST_CASE("padding modes: exact on every split, to second order") {
  const std::vector<GridExtents> grids{{.depth = 2},
                                       {.width = 3},
                                       {.sample = 2, .height = 2},
                                       {.depth = 5},
                                       {.depth = 3, .height = 2},
                                       {.height = 7},
                                       {.depth = 2, .channel = 2},
                                       {.depth = 2, .height = 2, .width = 2}};
  std::uint64_t seed = 0;
  for (const auto& extents : grids)
    for (int repeat = 0; repeat < (all_tests() ? 8 : 1); ++repeat) {
      Dice dice(++seed);
      const Shape shape{2, dice(3, 6), dice(3, 6), dice(3, 6), 2};
      const Extent3 extent{shape[1], shape[2], shape[3]};
      const auto three = [&](std::int64_t first, std::int64_t last) {
        return Triple(dice(first, last), dice(first, last), dice(first, last));
      };
      const auto outputs = [&](const Tensor& x) {
        return extents.channel > 1 && x.layout() ? SplitOutputs{.axis = 4} : SplitOutputs{};
      };
      const ConvAttributes a{.stride = three(1, 2), .padding = random_padding(dice, extent, 3)};
      check_split("conv", seed, extents, shape, {{3, 3, 2, 3, 2}, {3}},
                  [&](const Tensors& in) { return conv(in[0], in[1], in[2], a, outputs(in[0])); });
      // The padding of a transposed convolution is less than the extents of its result, 2 and more here.
      const ConvTransposeAttributes t{.stride = three(1, 2), .padding = random_padding(dice, {2, 2, 2}, 1), .output_padding = 1};
      check_split("conv_transpose", seed, extents, shape, {{2, 3, 3, 4, 3}, {3}},
                  [&](const Tensors& in) { return conv_transpose(in[0], in[1], in[2], t, outputs(in[0])); });
      const PoolAttributes p{.kernel = three(2, 3),
                             .stride = three(1, 2),
                             .padding = random_padding(dice, extent, 1),
                             .count_include_pad = dice(0, 1) == 1};
      check_split("avg_pool", seed, extents, shape, {},
                  [&](const Tensors& in) { return avg_pool(in[0], p, Activation::leaky_relu(0.3)); });
      check_split("max_pool", seed, extents, shape, {}, [&](const Tensors& in) { return max_pool(in[0], p); });
    }
}

TEST_CASE("padding modes: a mode without elements changes nothing, also where halos overlap") {
  for (std::uint64_t seed = 2; seed <= 4; seed += 2)  // even seeds: halos always overlap
    for (const auto mode : {circular, reflect}) {
      check_split("conv", seed, {.depth = 2}, {1, 12, 4, 5, 2}, {{3, 3, 3, 3, 2}}, [&](const Tensors& in) {
        return conv(in[0], in[1], {.padding = {0, mode}});
      });
      check_split("conv_transpose", seed, {.depth = 3}, {1, 6, 4, 5, 2}, {{2, 3, 2, 3, 3}}, [&](const Tensors& in) {
        return conv_transpose(in[0], in[1], {.stride = {2, 1, 1}, .padding = {0, mode}, .output_padding = {1, 0, 0}});
      });
    }
}

TEST_CASE("padding modes: adjoint of pad(), and a result that lies where zeros put it") {
  const Shape global{1, 5, 4, 3, 2};
  for (const auto& extents : std::vector<GridExtents>{{}, {.depth = 2}, {.depth = 3, .width = 2}, {.height = 4}, {.depth = 8}})
    check_on_ranks(extents.depth * extents.height * extents.width, "pad", [&](const Communicator& comm) {
      const auto grid = make_grid(comm, extents);
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        Dice dice(seed);
        const auto layout = with_random_cuts(activation_layout(grid, global), dice);
        const auto padding = random_padding(dice, {5, 4, 3}, 4);
        const auto x = part_of(global_tensor(global, 4), layout);
        require_adjoint("pad", [&](const Tensors& in) { return Tensors{pad(in[0], padding)}; }, {x}, comm, {.seed = seed});
        const auto w = global_tensor({2, 3, 2, 3, 2}, 5);
        for (const auto mode : modes) {
          const auto where = [&](const Tensor& y) { return y.layout()->axes; };
          const ConvAttributes a{.stride = {2, 1, 1}, .padding = {{2, 1, 1}, mode}};
          const ConvTransposeAttributes t{.stride = {1, 2, 2}, .padding = {{2, 1, 1}, mode}};
          require(where(conv(x, w, a)) == where(conv(x, w, {.stride = a.stride, .padding = a.padding.low})),
                  "[test] conv lies elsewhere");
          require(where(conv_transpose(x, w, t)) == where(conv_transpose(x, w, {.stride = t.stride, .padding = t.padding.low})),
                  "[test] conv_transpose lies elsewhere");
        }
      }
    });
}

TEST_CASE("circular padding: a convolution that shifts commute with") {
  const auto x = global_tensor({2, 5, 4, 6, 2}, 4), w = global_tensor({3, 3, 3, 3, 2}, 5);
  const auto shifted = [](const Tensor& t) { return local::roll(t, 2, 1); };
  const ConvAttributes a{.padding = {1, circular}};
  require_close("shift", conv(shifted(x), w, a), shifted(conv(x, w, a)), 1e-12);
}

TEST_CASE("padding modes: what is refused") {
  const auto x = global_tensor({1, 3, 4, 5, 1}, 1), w = global_tensor({1, 3, 3, 3, 1}, 2);
  const auto text = [&](const Padding& padding) { return error_text([&] { conv(x, w, {.padding = padding}); }); };
  CHECK(text({3, reflect})
            .starts_with("[pad] reflect padding adds at most 2 elements at an end of dimension 1, which has 3; 3 are "));
  CHECK(text({{0, 5, 0}, circular}).starts_with("[pad] circular padding adds at most 4 elements at an end of dimension 2"));
  CHECK(text({{3, 4, 5}, circular}).empty());
  CHECK(text({7, replicate}).empty());
  CHECK(error_text([&] { pad(x, Padding::sides({-1, 0, 0}, 0)); }).starts_with("[pad] numbers of elements must not be negative"));
  CHECK(error_text([&] {
          conv_transpose(x, w, {.padding = {{3, 0, 0}, reflect}});
        }).starts_with("[unpad] padding of 3 and 3 elements"));
  CHECK(error_text([&] {
          conv_data(x, w, {3, 4, 5}, {.padding = {1, circular}});
        }).starts_with("[conv_data] has no padding modes"));
  CHECK(error_text([&] { padding_mode("periodic"); }) ==
        "[padding_mode] no mode is called periodic; modes are zeros, circular, replicate, reflect, symmetric");
  for (const auto mode : modes) CHECK(padding_mode(name_of(mode)) == mode);
}
