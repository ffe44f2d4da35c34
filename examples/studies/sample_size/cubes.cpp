#include "examples/studies/sample_size/study.h"
#include "framework/base/host_memory.h"
#include "framework/base/job_queue.h"
#include "models/data/loader/regions.h"
#include "models/data/sources/bytes.h"

namespace mpigrad::sample_size {

namespace {

// Boxes in memory.
class KeptBoxes : public data::Source {
 public:
  KeptBoxes(data::SourcePtr boxes, std::int64_t count) : boxes_(std::move(boxes)) {
    const auto bytes = whole().elements() * cell();
    for (std::int64_t i = 0; i < count; ++i) values_.push_back(data::take_room(bytes)), targets_.emplace_back(target_bytes());
    // One thread reads, and touching fresh pages would take it longer than reading.
    constexpr std::int64_t page = 4096;
#pragma omp parallel for schedule(static)
    for (std::size_t i = 0; i < values_.size(); ++i)
      for (std::int64_t at = 0; at < bytes; at += page) values_[i][static_cast<std::size_t>(at)] = {};
    boxes_->queue().run([&] {
      for (std::size_t i = 0; i < values_.size(); ++i) {
        boxes_->read(static_cast<std::int64_t>(i), whole(), values_[i].get());
        boxes_->read_targets(static_cast<std::int64_t>(i), whole(), targets_[i].data());
      }
    });
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(values_.size()); }
  const data::SampleType& sample_type() const override { return boxes_->sample_type(); }
  void read(std::int64_t sample, const Box& box, std::byte* out) const override {
    data::copy_box(values_.at(static_cast<std::size_t>(sample)).get(), cell(), extents(), box, out);
  }
  void read_targets(std::int64_t sample, const Box&, std::byte* out) const override {
    std::copy_n(targets_.at(static_cast<std::size_t>(sample)).data(), target_bytes(), out);
  }
  std::string name_of_sample(std::int64_t sample) const override { return boxes_->name_of_sample(sample); }
  bool in_memory() const override { return true; }

 private:
  std::int64_t cell() const { return channels() * size_of(type()); }
  std::size_t target_bytes() const {
    return static_cast<std::size_t>(data::target_elements(*this, whole()) * size_of(target_type().type));
  }

  data::SourcePtr boxes_;
  std::vector<data::Room> values_;
  std::vector<std::vector<std::byte>> targets_;
};

}  // namespace

data::SourcePtr kept_in_memory(const data::SourcePtr& boxes, std::int64_t count, const Transport& transport) {
  const auto bytes = boxes->whole().elements() * boxes->channels() * size_of(boxes->type());
  const int ranks_of_process = transport.in_one_process() ? transport.size() : 1;
  if (count * bytes > available_host_bytes(transport.node_size() / ranks_of_process, ranks_of_process) / 4) return boxes;
  return std::make_shared<KeptBoxes>(boxes, count);
}

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
