#include "models/trainer/slices.h"

#include <algorithm>
#include <cmath>

namespace mpigrad::trainer {

namespace {

// The middle plane of a sample: [rows, columns, channels].
std::vector<double> plane(const data::Source& source, std::int64_t sample) {
  const auto& extents = source.extents();
  return source.values(sample, {{extents[0] / 2, 0, 0}, {extents[0] / 2 + 1, extents[1], extents[2]}});
}

}  // namespace

plot::Image slice(const data::Source& source, std::int64_t sample, std::int64_t channel, const std::string& title,
                  data::Transform transform) {
  const bool log = (transform == data::Transform::of_source ? source.transform() : transform) == data::Transform::log1p;
  const auto channels = source.channels();
  const auto stored = plane(source, sample);
  plot::Image image{.title = title, .rows = source.extents()[1], .columns = source.extents()[2]};
  for (auto i = static_cast<std::size_t>(channel); i < stored.size(); i += static_cast<std::size_t>(channels)) {
    const double value = stored[i];
    image.values.push_back(log ? std::log1p(value) : value);
  }
  return image;
}

plot::Image picture(const data::Source& source, std::int64_t sample) {
  const auto channels = static_cast<std::size_t>(source.channels());
  if (source.extents()[0] != 1 || (channels != 1 && channels != 3)) return slice(source, sample, 0, "");
  const auto stored = plane(source, sample);
  double low = 0, high = source.transform() == data::Transform::unit ? 255 : 1;
  for (const double value : stored) low = std::min(low, value), high = std::max(high, value);
  plot::Image image{.rows = source.extents()[1], .columns = source.extents()[2]};
  for (std::size_t i = 0; i < stored.size(); i += channels) {
    const auto at = [&](std::size_t c) { return (stored[i + (channels == 1 ? 0 : c)] - low) / (high - low); };
    image.pixels.push_back({at(0), at(1), at(2)});
  }
  return image;
}

}  // namespace mpigrad::trainer
