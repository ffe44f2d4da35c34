// Segmentation of whole volumes by windows.

#include "models/evaluate/sliding_window.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "models/nn/layers.h"
#include "tests/models/data/scans.h"
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
