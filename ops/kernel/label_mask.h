#pragma once
// Masks of labels on a GPU: computed by the views family, called by the losses.

#include <cstdint>

#include "ops/kernel/stream.h"

namespace mpigrad::cuda {

// y: [count, classes], true where the class is the label; a label outside [0, classes) is a fault unless it is `ignored` (if
// has_ignored).
template <class I>
void label_mask(std::int64_t count, std::int64_t classes, bool has_ignored, std::int64_t ignored, const I* label, bool* y,
                Fault* fault, Stream stream);

}  // namespace mpigrad::cuda
