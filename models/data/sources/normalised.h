#pragma once
// Samples whose values have the mean 0 and the deviation 1, each sample by itself: for scanners without a scale.

#include "models/data/source.h"

namespace mpigrad::data {

enum class Normalisation : std::uint8_t {
  none,     // as the source has them
  whole,    // mean and deviation of all cells
  nonzero,  // of the cells that are not 0, which then are all that changes: for volumes whose surroundings were set to 0
};

// Of every sample and channel x <- (x - mean) / deviation, float32 after the source's own transform; a constant channel becomes
// 0. Statistics are found when a sample is first read, of all of it, in double, 64 MiB at a time. Error: a value that is not
// finite, with its sample.
SourcePtr normalised(SourcePtr source, Normalisation normalisation);

}  // namespace mpigrad::data
