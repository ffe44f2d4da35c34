#include "models/trainer/contrastive/monitor.h"

#include <algorithm>
#include <cmath>

#include "models/data/data.h"
#include "models/evaluate/embeddings.h"
#include "models/losses/contrastive/batch.h"
#include "models/trainer/contrastive/samples.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad::contrast {
namespace {

constexpr std::int64_t least = 4;
constexpr std::uint64_t seed = 1;  // of the random choice, the same for all trainings

Tensor rows_of(const Tensor& x, const std::vector<double>& places) {
  return take(x, from_vector({static_cast<std::int64_t>(places.size())}, places, DType::int64));
}

}  // namespace

Monitor::Monitor(const TrainOptions& o, Network& net, const data::SourcePtr& source, const std::vector<std::int64_t>& samples,
                 const Communicator& world, const EncodeAttributes& encode)
    : net_(net), source_(source), world_(world), encode_(encode) {
  const auto all = static_cast<std::int64_t>(samples.size());
  const auto count = std::min(o.monitor, all);
  if (count < least) return;
  const auto labels = has_labels(*source) ? labels_of(*source, o.source.label, "the monitor") : std::vector<std::int64_t>();
  if (count == all) samples_ = samples;
  else
    for (const auto i : data::split_train_test(all, static_cast<double>(count) / static_cast<double>(all), seed).test)
      samples_.push_back(samples[static_cast<std::size_t>(i)]);
  in_bank_.resize(samples_.size());
  for (const auto i : data::split_train_test(count, 0.5, seed).test) in_bank_[static_cast<std::size_t>(i)] = true;
  for (const auto sample : samples_)
    if (!labels.empty()) labels_.push_back(static_cast<double>(labels[static_cast<std::size_t>(sample)]));
}

FeatureQuality Monitor::operator()() const {
  FeatureQuality result;
  if (samples_.empty()) return result;
  Untaped scope;
  const auto all = encode(net_, source_, samples_, world_, encode_)[0];
  UseDevice device(DeviceKind::cpu);
  // Samples that are not finite occur here only with schedule.skip_bad.
  std::vector<double> good;
  const auto sums = sum(all, {1}).to_vector();
  for (std::size_t i = 0; i < sums.size(); ++i)
    if (std::isfinite(sums[i])) good.push_back(static_cast<double>(i));
  if (static_cast<std::int64_t>(good.size()) < least) return result;
  const auto found = contrastive::collapse(part_of(rows_of(all, good), world_), world_);
  result.deviation = found.mean_deviation, result.effective_rank = found.effective_rank;
  if (labels_.empty()) return result;
  const auto half = [&](bool bank) {
    std::vector<double> places, names;
    for (const double place : good)
      if (in_bank_[static_cast<std::size_t>(place)] == bank)
        places.push_back(place), names.push_back(labels_[static_cast<std::size_t>(place)]);
    const auto n = static_cast<std::int64_t>(places.size());
    return contrastive::Labelled{part_of(rows_of(all, places), world_), part_of(from_vector({n}, names, DType::int64), world_)};
  };
  if (const auto in_bank =
          std::count_if(good.begin(), good.end(), [&](double at) { return in_bank_[static_cast<std::size_t>(at)]; });
      in_bank > 0 && in_bank < static_cast<std::int64_t>(good.size()))
    result.neighbours =
        contrastive::score_or_nan([&] { return contrastive::neighbour_accuracy(half(false), half(true), world_); });
  return result;
}

}  // namespace mpigrad::contrast
