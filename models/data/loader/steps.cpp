#include "models/data/loader/steps.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/base/error.h"

namespace mpigrad::data {

void shuffle(std::vector<std::int64_t>& values, const Philox& random) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i, i)]);
}

Steps::Steps(const Source& source, std::vector<std::int64_t> which, std::int64_t batch_, std::uint64_t seed_, bool shuffle_,
             bool drop_last_)
    : samples(std::move(which)), batch(batch_), seed(seed_), shuffle(shuffle_), drop_last(drop_last_) {
  require(batch > 0, "[data] a batch needs at least one sample, not {}", batch);
  if (samples.empty()) {
    samples.resize(static_cast<std::size_t>(source.size()));
    std::iota(samples.begin(), samples.end(), 0);
  }
  for (const auto sample : samples)
    require(sample >= 0 && sample < source.size(), "[data] sample {} of {}", sample, source.size());
  require(count() > 0, "[data] {} samples make no batch of {}", samples.size(), batch);
}

std::int64_t Steps::count() const {
  const auto n = static_cast<std::int64_t>(samples.size());
  return drop_last ? n / batch : (n + batch - 1) / batch;
}

std::int64_t Steps::samples_per_epoch() const {
  const auto n = static_cast<std::int64_t>(samples.size());
  return drop_last ? n / batch * batch : n;
}

std::vector<std::int64_t> Steps::order(std::int64_t epoch) const {
  auto result = samples;
  if (shuffle) data::shuffle(result, Philox{seed, static_cast<std::uint64_t>(epoch)}.child(0));
  return result;
}

std::vector<std::int64_t> Steps::samples_of(std::int64_t epoch, std::int64_t step) const {
  require(step >= 0 && step < count(), "[data] step {} of {}", step, count());
  const auto all = order(epoch);
  const auto begin = step * batch, end = std::min(begin + batch, static_cast<std::int64_t>(all.size()));
  return {all.begin() + begin, all.begin() + end};
}

void require_planes(const GridPtr& grid, const Shape& global) {
  for (int a = 0; a < 3; ++a) {
    const auto ranks = grid->extents[static_cast<std::size_t>(a + 1)];
    require(ranks <= global[a + 1], "[data] {} ranks along {} for {} planes: input {}", ranks,
            grid->names[static_cast<std::size_t>(a + 1)], global[a + 1], global);
  }
}

}  // namespace mpigrad::data
