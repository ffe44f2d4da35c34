#pragma once
// The samples of each step of an epoch, on all ranks together.

#include <cstdint>
#include <vector>

#include "comm/distributed/grid.h"
#include "framework/tensor/random.h"
#include "models/data/source.h"

namespace mpigrad::data {

// The steps of an epoch; the same on every rank.
struct Steps {
  std::vector<std::int64_t> samples;
  std::int64_t batch = 1;
  std::uint64_t seed = 0;
  bool shuffle = false, drop_last = false;

  // `samples`, or all samples of the source if it is empty. Errors: a sample that does not exist, not even one batch.
  Steps(const Source& source, std::vector<std::int64_t> samples, std::int64_t batch, std::uint64_t seed, bool shuffle,
        bool drop_last);

  std::int64_t count() const;
  std::int64_t samples_per_epoch() const;
  std::vector<std::int64_t> order(std::int64_t epoch) const;
  std::vector<std::int64_t> samples_of(std::int64_t epoch, std::int64_t step) const;  // Error: no such step
};
// Shuffles in the same way on every rank.
void shuffle(std::vector<std::int64_t>& values, const Philox& random);

// Errors: more ranks along a spatial axis than planes of global [N, D, H, W, C].
void require_planes(const GridPtr& grid, const Shape& global);

}  // namespace mpigrad::data
