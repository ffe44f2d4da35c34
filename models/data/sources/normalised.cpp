#include "models/data/sources/normalised.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <unordered_map>

#include "framework/base/job_queue.h"
#include "models/data/data_augment.h"

namespace mpigrad::data {
namespace {

constexpr std::int64_t bytes_of_slab = 1 << 26;

class NormalisedSource : public Source {
 public:
  NormalisedSource(SourcePtr source, Normalisation normalisation, const std::vector<IntensityScale>& scales)
      : source_(std::move(source)), type_(source_->sample_type()), nonzero_(normalisation == Normalisation::nonzero),
        scales_(scales) {
    if (scales_.empty()) scales_.resize(static_cast<std::size_t>(type_.channels));
    measures_ = normalisation != Normalisation::none &&
                std::any_of(scales_.begin(), scales_.end(), [](const IntensityScale& scale) { return scale.deviation == 0; });
    transform_ = type_.transform;
    type_.type = DType::float32, type_.transform = Transform::none;
  }

  std::int64_t size() const override { return source_->size(); }
  const SampleType& sample_type() const override { return type_; }
  Shape extents_of(std::int64_t sample) const override { return source_->extents_of(sample); }
  std::string name_of_sample(std::int64_t sample) const override { return source_->name_of_sample(sample); }
  void check(std::int64_t part, std::int64_t parts) const override { source_->check(part, parts); }
  bool in_memory() const override { return source_->in_memory(); }
  bool targets_in_memory() const override { return source_->targets_in_memory(); }
  JobQueue& queue() const override { return source_->queue(); }
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override {
    source_->read_targets(sample, box, out);
  }

  void read(std::int64_t sample, const Box& box, std::byte* out) const override {
    static const std::vector<Statistics> none;
    const auto& statistics = measures_ ? of(sample) : none;
    auto* values = reinterpret_cast<float*>(out);
    plain(sample, box, values);
    const auto channels = static_cast<std::size_t>(type_.channels);
    const auto count = static_cast<std::size_t>(box.elements()) * channels;
    for (std::size_t i = 0; i < count; ++i) {
      const auto c = i % channels;
      if (const auto& scale = scales_[c]; scale.deviation > 0) {
        require(std::isfinite(values[i]), "[data] {}: a value is {}", name_of_sample(sample), values[i]);
        const auto clipped = std::clamp(static_cast<double>(values[i]), scale.low, scale.high);
        values[i] = static_cast<float>((clipped - scale.mean) / scale.deviation);
        continue;
      }
      if (!measures_ || (nonzero_ && values[i] == 0)) continue;
      const auto& [mean, factor] = statistics[c];
      values[i] = static_cast<float>((static_cast<double>(values[i]) - mean) * factor);
    }
  }

 private:
  struct Statistics {
    double mean = 0, factor = 0;  // 1 / deviation
  };

  // The values after the source's own transform.
  void plain(std::int64_t sample, const Box& box, float* out) const {
    const auto count = box.elements() * type_.channels;
    std::vector<std::byte> stored(static_cast<std::size_t>(count * size_of(source_->type())));
    source_->read(sample, box, stored.data());
    Piece piece;
    piece.box = box;
    copy_piece(piece, {box, source_->type(), stored.data()}, box.extents(), type_.channels, transform_, DType::float32, out,
               [&] { return name_of_sample(sample); });
  }

  // Several threads may read if the source is in memory.
  const std::vector<Statistics>& of(std::int64_t sample) const {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = found_.find(sample); found != found_.end()) return found->second;
    }
    auto statistics = measured(sample);
    const std::lock_guard lock(mutex_);
    return found_.try_emplace(sample, std::move(statistics)).first->second;
  }

  std::vector<Statistics> measured(std::int64_t sample) const {
    const auto extents = extents_of(sample);
    const auto channels = static_cast<std::size_t>(type_.channels);
    const auto plane = extents[1] * extents[2];
    const auto planes = std::max<std::int64_t>(1, bytes_of_slab / (plane * type_.channels * size_of(DType::float32)));
    std::vector<float> values(static_cast<std::size_t>(std::min(planes, extents[0]) * plane) * channels);
    // Moments of slabs are combined as in Chan, Golub and LeVeque 1983.
    struct Moments {
      double count = 0, mean = 0, squares = 0;
    };
    std::vector<Moments> all(channels);
    for (std::int64_t d = 0; d < extents[0]; d += planes) {
      const Box slab{{d, 0, 0}, {std::min(d + planes, extents[0]), extents[1], extents[2]}};
      plain(sample, slab, values.data());
      const auto end = static_cast<std::size_t>(slab.elements()) * channels;
      for (std::size_t c = 0; c < channels; ++c) {
        Moments part;
        for (std::size_t i = c; i < end; i += channels) {
          require(std::isfinite(values[i]), "[data] {}: a value is {}", name_of_sample(sample), values[i]);
          if (!nonzero_ || values[i] != 0) ++part.count, part.mean += static_cast<double>(values[i]);
        }
        if (part.count == 0) continue;
        part.mean /= part.count;
        for (std::size_t i = c; i < end; i += channels)
          if (!nonzero_ || values[i] != 0) {
            const double from_mean = static_cast<double>(values[i]) - part.mean;
            part.squares += from_mean * from_mean;
          }
        auto& moments = all[c];
        const double total = moments.count + part.count, apart = part.mean - moments.mean;
        moments.squares += part.squares + apart * apart * moments.count * part.count / total;
        moments.mean += apart * part.count / total;
        moments.count = total;
      }
    }
    std::vector<Statistics> result;
    for (const auto& moments : all) {
      const double deviation = moments.count > 0 ? std::sqrt(moments.squares / moments.count) : 0;
      result.push_back({moments.mean, deviation > 0 ? 1 / deviation : 0});
    }
    return result;
  }

  SourcePtr source_;
  SampleType type_;
  Transform transform_;
  bool nonzero_, measures_ = false;
  std::vector<IntensityScale> scales_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::int64_t, std::vector<Statistics>> found_;  // references to its values stay valid
};

}  // namespace

SourcePtr normalised(SourcePtr source, Normalisation normalisation, const std::vector<IntensityScale>& scales) {
  require(source != nullptr, "[data] no source to normalise");
  if (normalisation == Normalisation::none && scales.empty()) return source;
  const auto channels = source->channels();
  require(scales.empty() || static_cast<std::int64_t>(scales.size()) == channels,
          "[data] {} scales of intensities for {} channels", scales.size(), channels);
  for (const auto& [low, high, mean, deviation] : scales)
    require(std::isfinite(low) && std::isfinite(high) && std::isfinite(mean) && std::isfinite(deviation) && low <= high &&
                deviation >= 0,
            "[data] a scale of intensities is finite, from low to high, with a deviation that is not negative: {}, {}, mean {}, "
            "deviation {}",
            low, high, mean, deviation);
  return std::make_shared<NormalisedSource>(std::move(source), normalisation, scales);
}

}  // namespace mpigrad::data
