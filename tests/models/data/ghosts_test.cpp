// Ghost planes: halo planes that are read from the file together with a rank's block.

#include <doctest/doctest.h>

#include "comm/distributed/distributed.h"
#include "framework/engine/tape.h"
#include "models/data/data.h"
#include "models/data/sources/function.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "tests/support/ranks.h"
#include "tests/support/traffic.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

data::SourcePtr volumes() {
  data::FunctionSamples made{.size = 5, .extents = {9, 6, 7}, .channels = 2, .target_names = {"a"}};
  made.values = [](std::int64_t sample, const Box& box, std::span<float> out) {
    std::size_t at = 0;
    for (auto d = box.begin[0]; d < box.end[0]; ++d)
      for (auto h = box.begin[1]; h < box.end[1]; ++h)
        for (auto w = box.begin[2]; w < box.end[2]; ++w)
          for (int c = 0; c < 2; ++c) out[at++] = static_cast<float>((sample * 1000 + d * 100 + h * 10 + w) % 17 + 20 * c);
  };
  made.targets = [](std::int64_t sample) { return std::vector<double>{static_cast<double>(sample)}; };
  return std::make_shared<data::FunctionSource>(made);
}

bool same_elements(const Tensor& a, const Tensor& b) { return a.type() == b.type() && a.to_vector() == b.to_vector(); }

}  // namespace

TEST_CASE("ghosts: batches are the same, and windows within the planes that were read ask no other rank") {
  const std::vector<GridExtents> grids{
      {.depth = 3}, {.depth = 2, .height = 2}, {.depth = 2, .height = 2, .width = 2}, {.sample = 2, .depth = 4}, {.width = 3}};
  for (const auto& extents : grids)
    for (const std::int64_t store : {std::int64_t{0}, std::int64_t{1} << 20}) {
      const int ranks = extents.sample * extents.depth * extents.height * extents.width;
      Traffic traffic{.type = DType::float64};
      check_on_ranks(ranks, "ghosts", [&](const Communicator& world) {
        const Communicator comm(std::make_shared<CountingTransport>(world.transport().duplicate(), traffic));
        const auto grid = make_grid(comm, extents);
        const auto loader = [&](std::int64_t ghosts, bool collective = false) {
          return data::Loader(volumes(), {.grid = grid,
                                          .batch = 2,
                                          .seed = 3,
                                          .shuffle = true,
                                          .flips = true,
                                          .shifts = true,
                                          .dtype = DType::float64,
                                          .ghosts = ghosts,
                                          .store_bytes = store,
                                          .collective = collective,
                                          .piece_bytes = 100});
        };
        const auto plain = loader(0), wide = loader(2), together = loader(2, true);
        for (std::int64_t step = 0; step < 3; ++step) {  // the last one is smaller
          const auto a = plain.batch(0, step), b = wide.batch(0, step);
          require(same_elements(a.x.without_layout(), b.x.without_layout()) &&
                      same_elements(a.y.without_layout(), b.y.without_layout()),
                  "[test] another batch");
          const auto c = together.batch(0, step);
          require(same_elements(c.x.without_layout(), b.x.without_layout()) &&
                      same_elements(c.y.without_layout(), b.y.without_layout()),
                  "[test] another batch where ranks read together");
          if (a.x.layout()->global[0] < extents.sample) continue;
          for (const std::int64_t kernel : {3, 5, 7}) {
            const auto w = random_normal({3, kernel, kernel, kernel, 2}, {.key = 4}, 0, 1, DType::float64);
            const auto half = kernel / 2;
            const ConvAttributes attributes{.padding = half};
            const auto gradient = [&](const Tensor& x, Tensor& y) {
              Tape tape;
              y = conv(x, w, attributes);
              return tape.gradient(sum(square(y)), {w})[0];
            };
            world.transport().barrier();
            const auto before = traffic.messages.load();
            world.transport().barrier();
            Tensor from_files, from_ranks;
            const auto one = gradient(b.x, from_files);
            world.transport().barrier();
            const auto moved = traffic.messages.load() - before;
            world.transport().barrier();
            const auto two = gradient(a.x, from_ranks);
            world.transport().barrier();
            require((moved == 0) == (kernel <= 5), "[test] kernel {}: {} elements moved", kernel, moved);
            require(traffic.messages.load() > before + moved, "[test] nothing moves without them");
            world.transport().barrier();
            if (kernel == 5) {
              Tensor from_others;
              const auto three = gradient(c.x, from_others);
              world.transport().barrier();
              require(same_elements(three, one) && same_elements(from_others.without_layout(), from_files.without_layout()),
                      "[test] other ghost planes where ranks read together");
            }
            const auto apart = [](const Tensor& p, const Tensor& q) {
              return max(abs(p.without_layout() - q.without_layout())).item() / (1 + max(abs(q.without_layout())).item());
            };
            require(from_files.layout() && *from_files.layout() == *from_ranks.layout() &&
                        apart(from_files, from_ranks) < 1e-12 && apart(one, two) < 1e-11,
                    "[test] kernel {}: apart by {} and {}", kernel, apart(from_files, from_ranks), apart(one, two));
          }
        }
      });
    }
}
