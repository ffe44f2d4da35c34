// Spectral convolutions: direct sums, one rank's results and gradients on random grids, adjoints, messages, refusals, files.

#include "models/nn/spectral/spectral_conv.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <complex>
#include <numbers>

#include "comm/check/adjoint_check.h"
#include "comm/collectives/collectives.h"
#include "framework/optim/optimizer.h"
#include "models/train/checkpoint/checkpoint.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/models/networks/split_networks.h"
#include "tests/support/distributed.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"
#include "tests/support/skip.h"
#include "tests/support/traffic.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// The frequencies that a weight has along a dimension, in its order.
std::vector<std::int64_t> frequencies(std::int64_t modes, bool halved) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < modes; ++i) result.push_back(halved || i < (modes + 1) / 2 ? i : i - modes);
  return result;
}

// y(n) = 1 / M sum over kept k of v(k) Re(R(k) X(k) exp(2 pi i k n / M)), v = 1 where k_w is 0 or W / 2, else 2, by sums.
std::vector<double> by_sums(const Tensor& x, const Tensor& w) {
  const auto &s = x.shape(), &r = w.shape();
  const auto xs = x.to_vector(), ws = w.to_vector();
  const std::int64_t points = s[1] * s[2] * s[3], in = s[4], out = r[4];
  const auto of_d = frequencies(r[0], false), of_h = frequencies(r[1], false), of_w = frequencies(r[2], true);
  std::vector<double> result(static_cast<std::size_t>(s[0] * points * out));
  std::int64_t place = 0;
  for (const auto kd : of_d)
    for (const auto kh : of_h)
      for (const auto kw : of_w) {
        std::vector<std::complex<double>> wave;
        for (std::int64_t d = 0; d < s[1]; ++d)
          for (std::int64_t h = 0; h < s[2]; ++h)
            for (std::int64_t n = 0; n < s[3]; ++n)
              wave.push_back(std::polar(1.0, 2 * std::numbers::pi *
                                                 (static_cast<double>(kd * d) / static_cast<double>(s[1]) +
                                                  static_cast<double>(kh * h) / static_cast<double>(s[2]) +
                                                  static_cast<double>(kw * n) / static_cast<double>(s[3]))));
        const double v = (kw == 0 || 2 * kw == s[3] ? 1.0 : 2.0) / static_cast<double>(points);
        for (std::int64_t sample = 0; sample < s[0]; ++sample)
          for (std::int64_t o = 0; o < out; ++o) {
            std::complex<double> y = 0;
            for (std::int64_t c = 0; c < in; ++c) {
              std::complex<double> coefficient = 0;
              for (std::int64_t p = 0; p < points; ++p)
                coefficient +=
                    xs[static_cast<std::size_t>((sample * points + p) * in + c)] * std::conj(wave[static_cast<std::size_t>(p)]);
              const auto at = static_cast<std::size_t>(2 * ((place * in + c) * out + o));
              y += coefficient * std::complex<double>(ws[at], ws[at + 1]);
            }
            for (std::int64_t p = 0; p < points; ++p)
              result[static_cast<std::size_t>((sample * points + p) * out + o)] +=
                  v * (y * wave[static_cast<std::size_t>(p)]).real();
          }
        ++place;
      }
  return result;
}

struct Problem {
  Shape x, w;
};

Problem random_problem(Dice& dice) {
  Problem p;
  p.x = {dice(1, 3), dice(1, 7), dice(1, 6), dice(1, 9), dice(1, 4)};
  p.w = {dice(1, p.x[1]), dice(1, p.x[2]), dice(1, p.x[3] / 2 + 1), p.x[4], dice(1, 4), 2};
  return p;
}

// All ranks along random axes of the grid, with random cuts; ranks may have nothing.
LayoutPtr random_grid_layout(const Communicator& comm, Dice& dice, const Shape& shape) {
  GridExtents extents;
  int rest = comm.size();
  std::vector<int*> axes{&extents.depth, &extents.depth, &extents.height, &extents.width, &extents.sample, &extents.channel};
  while (rest > 1) {
    const int prime = rest % 2 == 0 ? 2 : 3;
    *axes[static_cast<std::size_t>(dice(0, static_cast<std::int64_t>(axes.size()) - 1))] *= prime;
    rest /= prime;
  }
  auto layout = activation_layout(make_grid(comm, extents), shape);
  return dice(0, 1) == 0 ? layout : with_random_cuts(layout, dice);
}

struct Results {
  Tensor y;
  std::vector<Tensor> gradients;
};
Results results_of(const Tensor& x, const Tensor& w, const Tensor& bias) {
  Tape tape;
  const Tensor y = spectral_conv(x, w, bias);
  return {y, tape.gradient(sum(y * y * y), {x, w, bias})};
}

}  // namespace

TEST_CASE("spectral_conv: values of direct sums") {
  Dice dice(1);
  for (int trial = 0; trial < 12; ++trial) {
    auto [shape, weight] = random_problem(dice);
    if (trial == 0) shape = {1, 4, 6, 8, 2}, weight = {4, 6, 5, 2, 1, 2};  // all frequencies
    if (trial == 1) shape = {2, 1, 1, 9, 1}, weight = {1, 1, 4, 1, 2, 2};  // one dimension
    const Tensor x = global_tensor(shape, 1), w = global_tensor(weight, 2);
    const auto y = spectral_conv(x, w);
    CAPTURE(to_string(x));
    CAPTURE(to_string(w));
    const auto expected = from_vector(y.shape(), by_sums(x, w), DType::float64);
    CHECK_NOTHROW(require_close("direct sums", y, expected, 1e-12));
    if (trial < 4)
      CHECK_NOTHROW(require_close(
          "float32", cast(spectral_conv(cast(x, DType::float32), cast(w, DType::float32)), DType::float64), expected, 1e-5));
  }
}

TEST_CASE("spectral_conv on ranks: values and gradients of one rank on random grids") {
  for (const int ranks : {1, 2, 3, 4, 8})
    check_on_ranks(ranks, "random grids", [ranks](const Communicator& comm) {
      Dice dice(static_cast<std::uint64_t>(ranks));
      for (int trial = 0; trial < 20; ++trial) {
        const auto [shape, weight] = random_problem(dice);
        const auto layout = random_grid_layout(comm, dice, shape);
        const Tensor w = global_tensor(weight, 2), bias = global_tensor({weight[4]}, 3);
        const auto what = fmt::format("{}, weight {}", to_string(*layout), weight);
        const auto one = results_of(global_tensor(shape, 1), w, bias);
        const auto mine = results_of(global_tensor(shape, 1, layout), w, bias);
        require_close("y: " + what, mine.y, part_of(one.y, mine.y.layout()));
        for (int d = 0; d < 4; ++d)
          require(mine.y.layout()->box().begin[d] == layout->box().begin[d], "[test] {} moved: {}", what, mine.y);
        require_close("x: " + what, mine.gradients[0], part_of(one.gradients[0], layout));
        require_close("w: " + what, mine.gradients[1], one.gradients[1]);
        require_close("bias: " + what, mine.gradients[2], one.gradients[2]);
      }
    });
}

TEST_CASE("spectral_conv on ranks: adjoints to second order") {
  for (const int ranks : {1, 2, 3, 4})
    check_on_ranks(ranks, "adjoints", [ranks](const Communicator& comm) {
      const Shape shape{2, 5, 4, 6, 2};
      const auto grid = ranks == 4 ? make_grid(comm, {.depth = 2, .height = 2}) : make_grid(comm, {.depth = ranks});
      const Tensor x = global_tensor(shape, 1, activation_layout(grid, shape));
      const Tensor w = global_tensor({3, 2, 3, 2, 3, 2}, 2).with_layout(replicated_layout(grid, {3, 2, 3, 2, 3, 2}));
      require_adjoint(
          "spectral_conv", [](const Tensors& in) { return Tensors{spectral_conv(in[0], in[1])}; }, {x, w}, comm);
      // A weight of which each rank has some rows of frequencies, whether the product needs these or others.
      const auto blocks = split_layout(grid, {3, 2, 3, 2, 3, 2}, {-1, 1});
      require_adjoint("weight in blocks", [](const Tensors& in) { return Tensors{spectral_conv(in[0], in[1])}; },
                      {x, global_tensor({3, 2, 3, 2, 3, 2}, 2, blocks)}, comm, {.second = ranks < 3});
    });
}

namespace {

struct Net : nn::Module {
  Tensor operator()(const Tensor& x) override { return second(activate(first(x), Activation::gelu)); }
  nn::SpectralConv3d first{*this, "first", {.out = 4, .modes = {4, 4, 3}}},
      second{*this, "second", {.out = 2, .modes = {2, 3, 2}}};
};
const SplitNetwork network{"spectral", [] { return std::make_unique<Net>(); }, {2, 6, 5, 8, 3}, {2, 6, 5, 8, 2}};

Trained trained(SplitTraining& training) {
  Adam adam(*training.net, {.learning_rate = 0.01, .epsilon = 1e-2});
  training.train(adam, 0, 3, 0.5);
  return everything_of(*training.net, &adam);
}

}  // namespace

TEST_CASE("SpectralConv3d: training on grids equals one rank; ranks store the weights of their frequencies; files") {
  SplitTraining one(network, nullptr);
  const auto expected = trained(one);
  const Folder folder;
  for (const auto& [extents, sharded] : std::vector<std::pair<GridExtents, bool>>{{{.depth = 2}, false},
                                                                                  {{.depth = 4}, false},
                                                                                  {{.depth = 3}, true},
                                                                                  {{.sample = 2}, false},
                                                                                  {{.sample = 2}, true},
                                                                                  {{.sample = 2, .depth = 2}, false},
                                                                                  {{.height = 2, .width = 2}, false},
                                                                                  {{.depth = 2, .channel = 2}, false}}) {
    const auto what = fmt::format("{}x{}x{}x{}x{}{}", extents.sample, extents.depth, extents.height, extents.width,
                                  extents.channel, sharded ? ", sharded" : "");
    check_on_ranks(ranks_of(extents), what, [&, extents = extents, sharded = sharded](const Communicator& comm) {
      SplitTraining mine(network, make_grid(comm, extents), nn::BuildOptions{.sharded_weights = sharded});
      const auto& w = mine.net->parameters().find("first.weight").value;
      const auto stored = allreduce(full({1}, static_cast<double>(w.elements()), DType::float64), comm).item();
      const auto copies = sharded ? 1 : extents.sample * extents.channel;  // the channels of the input are whole
      require(stored == static_cast<double>(copies * global_shape(w).elements()), "[test] {} stores {}", what, w);
      require_trained(what, trained(mine), expected);
      if (without_hdf5("checkpoints")) return;
      save_checkpoint(folder.path / (what + ".h5"), *mine.net, comm);
    });
    if (!without_hdf5("checkpoints")) {
      SplitTraining read(network, nullptr);
      load_checkpoint(folder.path / (what + ".h5"), *read.net);
      for (const auto& [name, values] : everything_of(*read.net)) {
        const auto& all = expected.at(name);
        for (std::size_t i = 0; i < values.size(); ++i) REQUIRE(values[i] == doctest::Approx(all[i]).epsilon(1e-9));
      }
    }
  }
}

TEST_CASE("SpectralConv3d: a step sends kept frequencies only, and no weights") {
  constexpr std::int64_t samples = 2, side = 12, in = 3, out = 4, along_d = 5, along_h = 4, along_w = 3;
  for (const int ranks : {2, 4}) {
    Traffic messages{.type = DType::complex128}, sums{.type = DType::float64};
    check_on_ranks(ranks, "traffic", [&](const Communicator& bare) {
      const auto grid = make_grid(counted(counted(bare, messages), sums), {.depth = ranks});
      const Shape shape{samples, side, side, side, in};
      const auto layout = activation_layout(grid, shape);
      const Tensor x = global_tensor(shape, 1, layout);
      const Shape weight{along_d, along_h, along_w, in, out, 2};
      const Tensor w = global_tensor(weight, 2, split_layout(grid, weight, {-1, 1}));
      Tape tape;
      tape.gradient(sum(square(spectral_conv(x, w))), {x, w});
    });
    // Forwards and backwards: D becomes whole with C channels, and is split again with `out` channels.
    const std::int64_t each = samples * side * along_h * along_w * (in + out) * (ranks - 1) / ranks;
    CHECK(messages.all() == 2 * each);
    CHECK(sums.all() == 0);
  }
}

TEST_CASE("SpectralConv3d: two and one dimensions, other extents, half precision") {
  struct Planes : nn::Module {
    Tensor operator()(const Tensor& x) override { return conv(x); }
    nn::SpectralConv2d conv{*this, "conv", {.out = 3, .modes = {4, 3}}};
  } planes;
  planes.build(Shape{2, 6, 8, 2}, {.dtype = DType::float64});
  struct Lines : nn::Module {
    Tensor operator()(const Tensor& x) override { return conv(x); }
    nn::SpectralConv1d conv{*this, "conv", {.out = 3, .modes = 4, .bias = false}};
  } lines;
  lines.build(Shape{2, 8, 2}, {.dtype = DType::float64});
  CHECK(lines.parameters().size() == 1);
  const Tensor x = global_tensor({2, 6, 8, 2}, 1), y = planes(x), w = planes.parameters().find("conv.weight").value,
               bias = planes.parameters().find("conv.bias").value;
  CHECK_NOTHROW(require_close("planes", y, reshape(spectral_conv(reshape(x, {2, 1, 6, 8, 2}), w, bias), {2, 6, 8, 3})));
  CHECK(lines(reshape(slice(x, 1, 0, 1), {2, 8, 2})).shape() == Shape{2, 8, 3});
  CHECK(has(error_text([&] { lines(x); }), "[conv] needs [N, W, C]"));

  // A field that has only low frequencies has the same result on a finer mesh, at the points that both have.
  const auto field = [](std::int64_t n) {
    std::vector<double> values;
    for (std::int64_t h = 0; h < n; ++h)
      for (std::int64_t i = 0; i < n; ++i)
        for (int c = 0; c < 2; ++c)
          values.push_back(std::sin(2 * std::numbers::pi * static_cast<double>(h + c * i) / static_cast<double>(n)) + c);
    return from_vector({1, n, n, 2}, values, DType::float64);
  };
  const Tensor coarse = planes(field(8)), fine = planes(field(16));
  CHECK_NOTHROW(require_close("finer", slice(fine, {0, 0, 0, 0}, fine.shape(), {1, 2, 2, 1}), coarse));

  // Mixed precision: float32 inside, 16 bits outside.
  const Tensor half = cast(unsqueeze(x, 1), DType::bfloat16), w32 = cast(w, DType::float32);
  const Tensor rounded = spectral_conv(half, w32);
  CHECK(rounded.dtype() == DType::bfloat16);
  CHECK_NOTHROW(require_close("bfloat16", cast(rounded, DType::float32),
                              cast(cast(spectral_conv(cast(half, DType::float32), w32), DType::bfloat16), DType::float32), 0));
}

TEST_CASE("SpectralConv3d: refusals") {
  const Tensor x = global_tensor({1, 4, 4, 6, 2}, 1);
  const auto refused = [&](const Shape& weight) { return error_text([&] { spectral_conv(x, global_tensor(weight, 2)); }); };
  CHECK(
      has(refused({5, 1, 1, 2, 2, 2}), "[spectral_conv] 5 frequencies are kept along dimension 1, of 4 that an extent of 4 has"));
  CHECK(has(refused({1, 1, 5, 2, 2, 2}), "5 frequencies are kept along dimension 3, of 4 that an extent of 6 has"));
  CHECK(has(refused({1, 1, 1, 3, 2, 2}), "the weight has 3 input channels"));
  CHECK(has(refused({1, 1, 1, 2, 2, 3}), "needs a weight [modes_d, modes_h, modes_w, C, out, 2]"));
  CHECK(has(error_text([&] { spectral_conv(x, global_tensor({1, 1, 1, 2, 2, 2}, 2, {}, DType::float32)); }), "is float64"));
  struct Small : nn::Module {
    Tensor operator()(const Tensor& y) override { return conv(y); }
    nn::SpectralConv3d conv{*this, "conv", {.out = 3, .modes = 8}};
  } small;
  CHECK(has(error_text([&] { small.build(Shape{1, 4, 4, 6, 2}); }), "[conv] 8 frequencies are kept along dimension 1"));
  check_on_ranks(32, "all dimensions", [](const Communicator& comm) {
    const Shape shape{2, 2, 2, 2, 2};
    const auto grid = make_grid(comm, {.sample = 2, .depth = 2, .height = 2, .width = 2, .channel = 2});
    const auto text = error_text([&] {
      spectral_conv(global_tensor(shape, 1, activation_layout(grid, shape)), global_tensor({1, 1, 1, 2, 2, 2}, 2));
    });
    require(has(text, "[spectral_conv] all dimensions are split; make one of them whole"), "[test] {}", text);
  });
}
