// Segmentation of whole volumes by windows.

#include "models/evaluate/sliding_window.h"

#include <doctest/doctest.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <array>
#include <cmath>

#include "models/data/sources/memory.h"
#include "models/evaluate/window_sums.h"
#include "models/nn/layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/views/views.h"
#include "tests/models/data/scans.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// The scores of a cell depend only on its own value.
class PerCell : public nn::Module {
 public:
  Tensor operator()(const Tensor& x) override { return conv_(x); }

 private:
  nn::Conv3d conv_{*this, "conv", {.out = 3, .kernel = 1}};
};

}  // namespace

TEST_CASE("volumes: windows over a volume begin at its begin and end at its end, and overlap as they should") {
  using segmentation::window_places;
  CHECK(window_places(10, 10, 0.5) == std::vector<std::int64_t>{0});
  CHECK(window_places(7, 10, 0.5) == std::vector<std::int64_t>{-1});
  CHECK(window_places(20, 10, 0.5) == std::vector<std::int64_t>{0, 5, 10});
  CHECK(window_places(11, 10, 0) == std::vector<std::int64_t>{0, 1});
  for (const double overlap : {0.0, 0.25, 0.5, 0.9, 0.99})
    for (std::int64_t n = 11; n < 60; n += 7) {
      const auto places = window_places(n, 10, overlap);
      CHECK(places.front() == 0);
      CHECK(places.back() == n - 10);
      for (std::size_t i = 1; i < places.size(); ++i) {
        CHECK(places[i] > places[i - 1]);
        CHECK(static_cast<double>(places[i] - places[i - 1]) <= std::max(1.0, 10 * (1 - overlap)) + 1);
      }
    }
}

TEST_CASE("volumes: what a network says of single cells, it says of any volume through any windows on any grid") {
  const auto source = std::make_shared<Scans>();
  for (std::int64_t sample = 0; sample < source->size(); ++sample) {
    std::vector<float> expected;
    for (const GridExtents& g : {GridExtents{}, {.depth = 2}, {.height = 2, .width = 2}, {.depth = 3}})
      run_threads(g.depth * g.height * g.width, [&](std::shared_ptr<Transport> transport) {
        PerCell net;
        net.build(Shape{1, 4, 5, 3, 3}, {.seed = 9});
        net.train();
        const auto grid = make_grid(Communicator(transport), g);
        const bool first = transport->rank() == 0;
        if (g.depth * g.height * g.width == 1) {
          const auto values = source->values(sample, source->whole_of(sample));
          const auto w = net.parameters()[0].value.to_vector(), b = net.parameters()[1].value.to_vector();
          for (std::size_t i = 0; i < values.size(); i += 3) {
            std::array<double, 3> p{};
            double sum = 0;
            for (std::size_t k = 0; k < 3; ++k) {
              p[k] = b[k];
              for (std::size_t c = 0; c < 3; ++c) p[k] += w[3 * k + c] * values[i + c];
              p[k] = std::exp(p[k]), sum += p[k];
            }
            for (const double each : p) expected.push_back(static_cast<float>(each / sum));
          }
        }
        for (const bool gaussian : {true, false})
          for (const std::int64_t batch : {1, 3}) {
            const auto p = segmentation::sliding_window(
                net, *source, sample, {.window = {4, 5, 3}, .overlap = 0.4, .gaussian = gaussian, .batch = batch, .grid = grid});
            if (!first) continue;
            const auto extents = source->extents_of(sample);
            REQUIRE(p.shape() == Shape{extents[0], extents[1], extents[2], 3});
            const auto found = p.to_vector();
            double most = 0;
            for (std::size_t i = 0; i < found.size(); ++i) most = std::max(most, std::abs(found[i] - expected[i]));
            CHECK(most < 1e-5);
          }
        if (first) CHECK(net.training());
      });
    const auto extents = source->extents_of(sample);
    const auto labels =
        segmentation::most_likely(Tensor::over(expected.data(), {extents[0], extents[1], extents[2], 3}, DType::float32))
            .to_vector<std::int32_t>();
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const auto place = static_cast<std::size_t>(labels[i]);
      for (std::size_t k = 0; k < 3; ++k) REQUIRE(expected[3 * i + place] >= expected[3 * i + k]);
    }
  }
}

namespace {

// Scores that depend on neighbouring cells, so that windows and flips matter.
class Scores : public nn::Module {
 public:
  explicit Scores(std::int64_t classes) : classes_(classes) {}
  Tensor operator()(const Tensor& x) override { return conv_(x) * 4; }

 private:
  std::int64_t classes_;
  nn::Conv3d conv_{*this, "conv", {.out = classes_, .kernel = 3, .padding = 1}};
};

data::SourcePtr made_volume(const Shape& extents, std::int64_t channels = 1) {
  const auto x = random_normal({1, extents[0], extents[1], extents[2], channels}, {.key = 5}, 0, 1, DType::float32);
  return data::from_tensors(constant(x), zeros({1}), {.name = "made"});
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

constexpr std::array<GridExtents, 4> grids{{{}, {.depth = 2}, {.height = 2, .width = 2}, {.depth = 3}}};

}  // namespace

TEST_CASE("volumes: sums of windows that ranks share give the classes of the probabilities, as they lie and interpolated") {
  const auto source = made_volume({13, 9, 11});
  for (const auto& g : grids)
    check_on_ranks(ranks_of(g), "classes", [&](const Communicator& world) {
      Scores net(4);
      net.build(Shape{1, 6, 5, 4, 1}, {.seed = 9});
      segmentation::SlidingWindowOptions options{.window = {6, 5, 4}, .batch = 3, .grid = make_grid(world, g)};
      const auto p = segmentation::sliding_window(net, *source, 0, options);
      const auto expected = segmentation::most_likely(p).to_vector<std::int32_t>();
      const auto classes = segmentation::sliding_window_classes({&net}, *source, 0, {13, 9, 11}, options);
      if (world.rank() != 0) return require(classes.empty(), "[test] rank {} has classes", world.rank());
      require(classes == expected, "[test] the classes are not those of the largest probabilities");
    });
  // More and fewer cells along each axis; ranks with no cell.
  for (const Shape& to : {Shape{7, 15, 11}, Shape{30, 2, 3}, Shape{1, 1, 40}, Shape{13, 1, 1}}) {
    std::vector<std::int32_t> first;
    for (const auto& g : grids)
      check_on_ranks(ranks_of(g), "interpolated classes", [&](const Communicator& world) {
        Scores net(4);
        net.build(Shape{1, 6, 5, 4, 1}, {.seed = 9});
        const segmentation::SlidingWindowOptions options{.window = {6, 5, 4}, .grid = make_grid(world, g)};
        const auto p = segmentation::sliding_window(net, *source, 0, options).to_vector();
        const auto classes = segmentation::sliding_window_classes({&net}, *source, 0, to, options);
        if (world.rank() != 0) return;
        if (first.empty()) first = classes;
        require(first == classes, "[test] other classes on {} ranks", world.size());
        // The same by eight corners of each cell.
        const auto at = [](std::int64_t i, std::int64_t n, std::int64_t m) {
          const double place = (static_cast<double>(i) + 0.5) * static_cast<double>(n) / static_cast<double>(m) - 0.5;
          return std::clamp(place, 0.0, static_cast<double>(n - 1));
        };
        std::size_t cell = 0;
        for (std::int64_t d = 0; d < to[0]; ++d)
          for (std::int64_t h = 0; h < to[1]; ++h)
            for (std::int64_t w = 0; w < to[2]; ++w, ++cell) {
              const std::array<double, 3> place{at(d, 13, to[0]), at(h, 9, to[1]), at(w, 11, to[2])};
              std::array<double, 4> sum{};
              for (int corner = 0; corner < 8; ++corner) {
                double weight = 1;
                std::size_t from = 0;
                for (int a = 0; a < 3; ++a) {
                  const double low = std::floor(place[static_cast<std::size_t>(a)]),
                               rest = place[static_cast<std::size_t>(a)] - low;
                  const bool high = (corner >> a) % 2 == 1;
                  weight *= high ? rest : 1 - rest;
                  const std::int64_t n = Shape{13, 9, 11}[a];
                  from = from * static_cast<std::size_t>(n) +
                         static_cast<std::size_t>(std::min<std::int64_t>(n - 1, static_cast<std::int64_t>(low) + high));
                }
                for (std::size_t k = 0; k < 4; ++k) sum[k] += weight * p[4 * from + k];
              }
              const double most = *std::max_element(sum.begin(), sum.end());
              require(sum[static_cast<std::size_t>(classes[cell])] > most - 1e-5, "[test] cell {} is of another class", cell);
            }
      });
  }
}

TEST_CASE("volumes: mirrored windows and several networks give the mean of what each gives, on any grid") {
  const Shape extents{6, 5, 7};  // one window: its mirror image is that of the volume
  const auto x = random_normal({1, 6, 5, 7, 2}, {.key = 6}, 0, 1, DType::float32);
  std::vector<double> expected;
  for (const auto& g : grids)
    check_on_ranks(ranks_of(g), "mirrored", [&](const Communicator& world) {
      Scores one(3), two(3), other(5);
      one.build(Shape{1, 6, 5, 7, 2}, {.seed = 1}), two.build(Shape{1, 6, 5, 7, 2}, {.seed = 2});
      other.build(Shape{1, 6, 5, 7, 2}, {.seed = 3});
      const auto source = data::from_tensors(constant(x), zeros({1}), {.name = "made"});
      segmentation::SlidingWindowOptions options{.window = extents, .grid = make_grid(world, g)};
      const segmentation::Ensemble nets{&one, &two};
      if (expected.empty()) {
        expected.assign(static_cast<std::size_t>(extents.elements()) * 3, 0);
        for (auto* net : nets)
          for (const bool d : {false, true})
            for (const bool w : {false, true}) {
              std::vector<int> axes;
              if (d) axes.push_back(0);
              if (w) axes.push_back(2);
              auto image = reshape(x, {6, 5, 7, 2});
              for (const int axis : axes) image = flip(image, {axis});
              const auto mirrored = data::from_tensors(constant(reshape(image, {1, 6, 5, 7, 2})), zeros({1}), {.name = "made"});
              auto p = segmentation::sliding_window(*net, *mirrored, 0, options);
              for (const int axis : axes) p = flip(p, {axis});
              const auto values = p.to_vector();
              for (std::size_t i = 0; i < values.size(); ++i) expected[i] += values[i] / 8;
            }
      }
      options.mirrored = {2, 0};
      const auto found = segmentation::sliding_window(nets, *source, 0, options).to_vector();
      require(largest_difference(found, expected) < 1e-6, "[test] {} from the mean", largest_difference(found, expected));
      const auto refused = error_text([&] { segmentation::sliding_window({&one, &other}, *source, 0, options); });
      require(has(refused, "networks of 3 and of 5 classes have no mean"), "[test] {}", refused);
    });
  Scores net(3);
  net.build(Shape{1, 6, 5, 7, 2}, {.seed = 1});
  const auto source = data::from_tensors(constant(x), zeros({1}), {.name = "made"});
  for (const std::vector<int>& axes : {std::vector{0, 0}, {3}, {-1}})
    CHECK(has(error_text([&] { segmentation::sliding_window(net, *source, 0, {.window = extents, .mirrored = axes}); }),
              "mirrored axes are some of 0, 1 and 2"));
  CHECK(has(error_text([&] { segmentation::sliding_window({}, *source, 0, {.window = extents}); }), "there is no network"));
  CHECK(has(error_text([&] { segmentation::sliding_window(net, *source, 0, {.window = extents, .sums = DType::float64}); }),
            "float32 or uint16, not float64"));
}

TEST_CASE("volumes: sums of 16 bits give the classes of float32 but in 1e-4 of the cells, and the same on every grid") {
  const Shape extents{32, 28, 30};
  const auto source = made_volume(extents);
  std::vector<std::int32_t> first;
  for (const auto& g : {GridExtents{}, GridExtents{.depth = 2, .height = 2}})
    check_on_ranks(ranks_of(g), "16 bits", [&](const Communicator& world) {
      Scores net(3);
      net.build(Shape{1, 16, 16, 16, 1}, {.seed = 4});
      segmentation::SlidingWindowOptions options{.window = {16, 16, 16}, .grid = make_grid(world, g)};
      const auto wide = segmentation::sliding_window_classes({&net}, *source, 0, extents, options);
      const auto p = segmentation::sliding_window(net, *source, 0, options).to_vector();
      options.sums = DType::uint16;
      const auto narrow = segmentation::sliding_window_classes({&net}, *source, 0, extents, options);
      const auto rounded = segmentation::sliding_window(net, *source, 0, options).to_vector();
      require(largest_difference(p, rounded) < 1e-4, "[test] {} apart", largest_difference(p, rounded));
      if (world.rank() != 0) return;
      std::size_t other = 0;
      for (std::size_t i = 0; i < wide.size(); ++i) other += static_cast<std::size_t>(wide[i] != narrow[i]);
      require(static_cast<double>(other) <= 1e-4 * static_cast<double>(wide.size()), "[test] {} of {} cells are of other classes",
              other, wide.size());
      if (first.empty()) first = narrow;
      std::size_t elsewhere = 0;
      for (std::size_t i = 0; i < first.size(); ++i) elsewhere += static_cast<std::size_t>(first[i] != narrow[i]);
      require(elsewhere <= 2, "[test] {} cells differ between grids", elsewhere);
    });
}

TEST_CASE("volumes: regions have sigmoids, and a cell gets the class of the last region above 1/2, on any grid") {
  const auto source = made_volume({13, 9, 11});
  const std::vector<std::int64_t> written{2, 1, 4, 3};
  for (const auto& g : grids)
    check_on_ranks(ranks_of(g), "regions", [&](const Communicator& world) {
      Scores net(4);
      net.build(Shape{1, 6, 5, 4, 1}, {.seed = 9});
      segmentation::SlidingWindowOptions options{
          .window = {6, 5, 4}, .batch = 3, .grid = make_grid(world, g), .sigmoid = true, .written = written};
      const auto p = segmentation::sliding_window(net, *source, 0, options).to_vector();
      const auto classes = segmentation::sliding_window_classes({&net}, *source, 0, {13, 9, 11}, options);
      options.sums = DType::uint16;
      const auto narrow = segmentation::sliding_window_classes({&net}, *source, 0, {13, 9, 11}, options);
      options.written.pop_back();
      const auto refused = error_text([&] { segmentation::sliding_window(net, *source, 0, options); });
      require(has(refused, "networks of 4 outputs are not of 3 regions"), "[test] {}", refused);
      if (world.rank() != 0) return;
      std::size_t other = 0;
      for (std::size_t i = 0; i < classes.size(); ++i) {
        std::int64_t expected = 0;
        for (std::size_t r = 0; r < written.size(); ++r)
          if (p[4 * i + r] > 0.5) expected = written[r];
        require(classes[i] == expected, "[test] cell {} is of class {}, not {}", i, classes[i], expected);
        other += static_cast<std::size_t>(narrow[i] != classes[i]);
      }
      require(other <= 8, "[test] {} cells are of other classes with sums of 16 bits", other);
    });
  const Shape extents{6, 5, 7};
  const auto one = made_volume(extents);
  Scores net(3);
  net.build(Shape{1, 6, 5, 7, 1}, {.seed = 1});
  const auto x = random_normal({1, 6, 5, 7, 1}, {.key = 5}, 0, 1, DType::float32);
  segmentation::SlidingWindowOptions options{.window = extents, .sigmoid = true};
  const auto p = segmentation::sliding_window(net, *one, 0, options).to_vector();
  CHECK(largest_difference(p, sigmoid(net(constant(x))).to_vector()) < 1e-6);
  CHECK(has(error_text([&] { segmentation::sliding_window_classes({&net}, *one, 0, extents, options); }), "write a class each"));
  class Infinite : public nn::Module {
   public:
    Tensor operator()(const Tensor& scores) override { return scores * 1e30 * 1e30; }
  };
  Infinite infinite;
  CHECK(has(error_text([&] { segmentation::sliding_window(infinite, *one, 0, options); }), "is not finite"));
}

TEST_CASE("volumes: a network whose scores are not finite is refused on every rank") {
  class NotFinite : public nn::Module {
   public:
    Tensor operator()(const Tensor& x) override { return concatenate({x, log(x * 0 - 1)}, -1); }
  };
  const auto source = made_volume({8, 8, 8});
  for (const auto& g : grids)
    check_on_ranks(ranks_of(g), "not finite", [&](const Communicator& world) {
      NotFinite net;
      const auto text = error_text([&] {
        segmentation::sliding_window_classes({&net}, *source, 0, {8, 8, 8}, {.window = {6, 6, 6}, .grid = make_grid(world, g)});
      });
      require(has(text, "what the network predicts of made [0] is not finite"), "[test] {}", text);
    });
}

TEST_CASE("volumes: the memory of sums falls with the ranks and is what planes in progress take") {
  const Shape brain{256, 256, 256};
  segmentation::SlidingWindowOptions options{.window = {64, 64, 64}};
  const auto one = segmentation::sliding_window_memory(brain, brain, 105, 1, options);
  // Windows are 64 planes deep; one more waits.
  CHECK(one.sums == 65.0 * 256 * 256 * 105 * 4);
  for (const int ranks : {2, 4, 8, 64}) {
    const auto part = segmentation::sliding_window_memory(brain, brain, 105, ranks, options);
    CHECK(part.sums == one.sums / ranks);
    CHECK(part.results == one.results / ranks);
  }
  // All planes at once, as windows of the whole depth have them.
  options.window = {256, 64, 64};
  const auto four = segmentation::sliding_window_memory(brain, brain, 105, 4, options);
  CHECK(four.total() < 2.2 * 0x1p30);
  options.sums = DType::uint16;
  CHECK(segmentation::sliding_window_memory(brain, brain, 105, 4, options).sums == four.sums / 2);

  // What is in progress is what was predicted.
  options = {.window = {4, 5, 6}, .overlap = 0.3, .batch = 2};
  const Shape extents{17, 9, 11};
  const segmentation::Windows windows(extents, options);
  segmentation::WindowSums<float> sums({{0, 0, 0}, extents}, 3);
  std::int64_t most = 0, finished = 0;
  for (std::size_t i = 0; i < windows.size(); i += 2) {
    most = std::max(most, std::min<std::int64_t>(17, windows.place(i + 1)[0] + 4) - windows.unfinished(i));
    sums.finish(windows.unfinished(i + 2), [&](std::int64_t d, const auto&) { CHECK(d == finished++); });
  }
  CHECK(finished == 17);
  CHECK(segmentation::sliding_window_memory(extents, extents, 3, 1, options).sums ==
        static_cast<double>((most + 1) * 9 * 11 * 3 * 4));
}

#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
TEST_CASE("volumes: the heap holds the sums of the planes in progress, as predicted, and not those of the volume") {
  static const auto heap = [] {
    const auto info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  };
  class Measuring : public nn::Module {
   public:
    Tensor operator()(const Tensor& x) override {
      most = std::max(most, heap());
      return conv_(x);
    }
    double most = 0;

   private:
    nn::Conv3d conv_{*this, "conv", {.out = 24, .kernel = 1}};
  };
  const Shape extents{64, 48, 48};
  const auto source = made_volume(extents);
  for (const auto sums : {DType::float32, DType::uint16}) {
    const segmentation::SlidingWindowOptions options{.window = {16, 16, 16}, .sums = sums};
    const auto expected = segmentation::sliding_window_memory(extents, extents, 24, 1, options);
    const double whole = static_cast<double>(extents.elements() * 24 * size_of(sums));
    CHECK(expected.sums == whole * 17 / 64);
    Measuring net;
    net.build(Shape{1, 16, 16, 16, 1}, {.seed = 1});
    const double before = heap();
    if (before == 0) return;  // another allocator, as that of a sanitizer
    (void)segmentation::sliding_window_classes({&net}, *source, 0, extents, options);
    CHECK(net.most - before > 0.8 * expected.sums);
    CHECK(net.most - before < expected.sums + expected.classes + 0x1p20);
  }
}
#endif
