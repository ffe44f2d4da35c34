#pragma once
// Pictures of samples.

#include <string>
#include <vector>

#include "models/data/source.h"
#include "models/trainer/plot/figure.h"

namespace mpigrad::trainer {

// The middle plane of a channel of a sample, with the source's own transform or another.
plot::Image slice(const data::Source& source, std::int64_t sample, std::int64_t channel, const std::string& title,
                  data::Transform transform = data::Transform::of_source);

// A picture of 1 or 3 channels in its own colours (bytes, or values from 0 to 1, or scaled by its largest value); otherwise the
// slice of the first channel.
plot::Image picture(const data::Source& source, std::int64_t sample);

// The values `value(epoch)` of all epochs, over epoch numbers from 1 on.
template <class Epoch, class Value>
plot::Series curve(const std::string& label, const std::vector<Epoch>& epochs, Value value) {
  plot::Series series{.label = label, .x = {}, .y = {}};
  for (const auto& each : epochs) series.x.push_back(static_cast<double>(each.epoch + 1)), series.y.push_back(value(each));
  return series;
}

}  // namespace mpigrad::trainer
