#pragma once
// Normalises each sample by itself to mean 0 and deviation 1, for scanners without a scale, or by given numbers.

#include "models/data/source.h"

namespace mpigrad::data {

enum class Normalisation : std::uint8_t {
  none,     // the source's own values
  whole,    // mean and deviation of all cells
  nonzero,  // of the cells that are not 0; only these are changed: for volumes whose surroundings were set to 0
};

// Of a channel: x <- (x, clipped to [low, high], - mean) / deviation; with deviation 0 the channel is normalised by itself. For
// scanners with a scale, such as CT.
struct IntensityScale {
  double low = 0, high = 0, mean = 0, deviation = 0;
};

// For every sample and channel x <- (x - mean) / deviation, float32 after the source's own transform; a constant channel becomes
// 0. Statistics are computed when a sample is first read, over the whole sample, in double, 64 MiB at a time. Error: a value that
// is not finite, with its sample. `scales`: none, or one for each channel. Errors: another number of scales; low above high, a
// negative deviation, numbers that are not finite.
SourcePtr normalised(SourcePtr source, Normalisation normalisation, const std::vector<IntensityScale>& scales = {});

}  // namespace mpigrad::data
