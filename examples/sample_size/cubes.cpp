#include "examples/sample_size/study.h"

namespace mpigrad::sample_size {

CubeSource::CubeSource(data::SourcePtr boxes, std::int64_t size) : boxes_(std::move(boxes)), type_(boxes_->sample_type()) {
  const auto& extents = boxes_->extents();
  require(size > 0 && extents[0] == extents[1] && extents[0] == extents[2] && extents[0] % size == 0,
          "[sample_size] boxes of {} cannot be cut into cubes of {}^3", extents, size);
  require(!type_.targets.per_cell, "[sample_size] the targets of {} are those of cells", boxes_->name_of_sample(0));
  side_ = extents[0] / size, cubes_ = side_ * side_ * side_;
  type_.extents = {size, size, size};
}

void CubeSource::read(std::int64_t sample, const Box& box, std::byte* out) const {
  const auto cube = sample % cubes_;
  const std::array<std::int64_t, 3> place{cube / (side_ * side_), cube / side_ % side_, cube % side_};
  auto moved = box;
  for (int d = 0; d < 3; ++d) moved.begin[d] += place[d] * type_.extents[d], moved.end[d] += place[d] * type_.extents[d];
  boxes_->read(sample / cubes_, moved, out);
}

void CubeSource::read_targets(std::int64_t sample, const Box&, std::byte* out) const {
  boxes_->read_targets(sample / cubes_, boxes_->whole(), out);
}

std::string CubeSource::name_of_sample(std::int64_t sample) const {
  return fmt::format("{}, cube {} of {}", boxes_->name_of_sample(sample / cubes_), sample % cubes_ + 1, cubes_);
}

}  // namespace mpigrad::sample_size
