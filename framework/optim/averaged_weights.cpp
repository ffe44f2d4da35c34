#include <algorithm>

#include "framework/cuda/cuda.h"
#include "framework/cuda/graph.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/optimizer_state.h"
#include "framework/optim/update_cpu.h"
#include "framework/optim/update_cuda.h"

namespace mpigrad {
AveragedWeights::AveragedWeights(Parameters& parameters, const AveragedWeightsAttributes& attributes)
    : parameters_(parameters), attributes_(attributes) {
  require(attributes.decay >= 0 && attributes.decay <= 1, "[averaged weights] decay is in [0, 1], got {}", attributes.decay);
  detail::require_packed("averaged weights", parameters);
  averages_ = detail::state_arena(parameters.tensors());
}

void AveragedWeights::update() {
  require(!swapped_, "[averaged weights] the parameters hold the averages; swap() back before update()");
  require(!cuda::capturing(), "[averaged weights] update() counts on the host: call it after a captured step, not within");
  const double rest = updates_ == 0 ? 1 : 1 - attributes_.decay;
  ++updates_;
  std::vector<std::int64_t> first(averages_.size() + 1, 0);
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    if (!averages_[i].raw() || !parameters_[i].value.raw()) return;  // waits for new weights before threads read them
    first[i + 1] = first[i] + averages_[i].elements();
  }
  const RuleOfStep<AverageRule> rule{.rule = {.rest = rest}};
  const auto segment_of = [&](std::size_t i) {
    return UpdateSegment{.count = averages_[i].elements(), .value = averages_[i].raw(), .gradient = parameters_[i].value.raw()};
  };
  if (!averages_.empty() && averages_[0].device() == DeviceKind::cuda) {
    for (const DType dtype : {DType::float32, DType::float64}) {
      std::vector<UpdateSegment> segments;
      for (std::size_t i = 0; i < averages_.size(); ++i)
        if (averages_[i].dtype() == dtype) segments.push_back(segment_of(i));
      cuda::update(dtype, segments, rule);
    }
    return;
  }
  detail::for_shares(
      averages_.size(), first.back(), [&](std::size_t s) { return first[s]; },
      [&](std::size_t s, std::int64_t begin, std::int64_t count) {
        const auto dtype = averages_[s].dtype();
        detail::update(dtype, detail::part_of(segment_of(s), dtype, begin, count), rule);
      });
}

void AveragedWeights::swap() {
  require(updates_ > 0, "[averaged weights] there is no average before the first update()");
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    std::byte *a = averages_[i].raw(), *p = parameters_[i].value.raw();
    if (!a || !p) continue;
    if (averages_[i].device() == DeviceKind::cuda) {
      const Tensor kept = detail::copied(averages_[i], DeviceKind::cuda);
      cuda::copy_on_device(a, p, kept.bytes());
      cuda::copy_on_device(p, kept.raw(), kept.bytes());
    } else {
      std::swap_ranges(a, a + averages_[i].bytes(), p);
    }
  }
  swapped_ = !swapped_;
}

std::vector<NamedTensor> AveragedWeights::state() const {
  require(!swapped_, "[averaged weights] the parameters hold the averages; swap() back before a checkpoint");
  std::vector<NamedTensor> result;
  for (std::size_t i = 0; i < averages_.size(); ++i) result.push_back({"average/" + parameters_[i].name, averages_[i]});
  return result;
}

void AveragedWeights::load_state(const std::vector<NamedTensor>& state, std::int64_t updates) {
  detail::copy_named("averaged weights", this->state(), state);
  updates_ = updates;
}

}  // namespace mpigrad
