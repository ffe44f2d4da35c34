#include "examples/trainer/slices.h"

#include <array>
#include <cmath>

namespace mpigrad::trainer {

plot::Image slice(const data::Source& source, std::int64_t sample, std::int64_t channel, const std::string& title) {
  const auto& extents = source.extents();
  const auto channels = source.channels();
  const std::array<std::int64_t, 3> begin{extents[0] / 2, 0, 0}, end{extents[0] / 2 + 1, extents[1], extents[2]};
  std::vector<float> stored(static_cast<std::size_t>(extents[1] * extents[2] * channels));
  source.read_async(sample, begin, end, DType::float32, stored.data()).get();
  plot::Image image{.title = title, .rows = extents[1], .columns = extents[2]};
  for (auto i = static_cast<std::size_t>(channel); i < stored.size(); i += static_cast<std::size_t>(channels)) {
    const double value = stored[i];
    image.values.push_back(source.transform() == data::Transform::log1p ? std::log1p(value) : value);
  }
  return image;
}

}  // namespace mpigrad::trainer
