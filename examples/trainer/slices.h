#pragma once
// Samples as pictures.

#include <string>

#include "examples/plot/figure.h"
#include "models/data_source.h"

namespace mpigrad::trainer {

// The middle plane of a sample's channel, as a network sees it.
plot::Image slice(const data::Source& source, std::int64_t sample, std::int64_t channel, const std::string& title);

// Values at first_x, first_x + 1, ...
plot::Series curve(const std::string& label, const std::vector<double>& values, double first_x);

}  // namespace mpigrad::trainer
