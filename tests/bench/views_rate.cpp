// The number of pairs of augmented views of small letters that one core makes per second, and of views that are only resized.
//
//   views_rate

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "framework/tensor/random.h"
#include "models/data/sources/memory.h"
#include "models/data/view_loader.h"

using namespace mpigrad;

namespace {

constexpr std::int64_t samples = 8192, side = 28;

data::SourcePtr letters() {
  data::Samples result{.file = "letters", .count = samples, .extents = {1, side, side}};
  result.values.resize(static_cast<std::size_t>(samples * side * side));
  for (std::size_t i = 0; i < result.values.size(); ++i)
    result.values[i] = static_cast<std::byte>(Philox{.key = 1}.below(i, 256));
  return std::make_shared<data::MemorySource>(std::move(result), std::vector<data::Labels>{});
}

// Pairs per second of a worker's time, in the fastest of five epochs.
double rate(const data::SourcePtr& source, const augment::Recipe& recipe) {
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const data::ViewLoader loader(source, {.batch = 256, .seed = 1, .views = {{recipe, 2}}});
    for (const auto& batch : loader.epoch(repeat)) require(batch.x.size() == 2, "[views] {} views", batch.x.size());
    best = std::max(best, static_cast<double>(loader.throughput().samples) / loader.throughput().worked);
  }
  return best;
}

}  // namespace

int main() {
  const auto source = letters();
  const double plain = rate(source, {augment::resize({1, 32, 32})}), augmented = rate(source, augment::handwriting({1, 32, 32}));
  fmt::print("{} letters of {} x {} at 32 x 32, one core: {:.0f} pairs a second, affine and elastic\n", samples, side, side,
             augmented);
  fmt::print("{:.0f} pairs a second only resized: {:.2f} times as many\n", plain, plain / augmented);
}
