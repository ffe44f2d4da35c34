#include <algorithm>

#include "framework/base/target_clones.h"
#include "framework/cuda/cuda.h"
#include "framework/cuda/graph.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/optimizer_state.h"
#include "framework/optim/update.h"
#include "framework/optim/update_cuda.h"

namespace mpigrad {
namespace {

template <class T>
MPIGRAD_BODY void average_body(T* __restrict a, const T* __restrict p, std::int64_t n, T rest) {
  for (std::int64_t i = 0; i < n; ++i) average_update(a[i], p[i], rest);
}
MPIGRAD_CLONES void average(float* a, const float* p, std::int64_t n, float rest) { average_body(a, p, n, rest); }
MPIGRAD_CLONES void average(double* a, const double* p, std::int64_t n, double rest) { average_body(a, p, n, rest); }

}  // namespace

AveragedWeights::AveragedWeights(Parameters& parameters, const AveragedWeightsAttributes& attributes)
    : parameters_(parameters), attributes_(attributes) {
  require(attributes.decay >= 0 && attributes.decay <= 1, "[averaged weights] decay is in [0, 1], got {}", attributes.decay);
  detail::require_packed("averaged weights", parameters);
  averages_ = detail::state_arena(parameters);
}

void AveragedWeights::update() {
  require(!swapped_, "[averaged weights] the parameters hold the averages; swap() back before update()");
  require(!cuda::capturing(), "[averaged weights] update() counts on the host: call it behind a captured step, not within");
  const double rest = updates_ == 0 ? 1 : 1 - attributes_.decay;
  ++updates_;
  std::vector<std::int64_t> first(averages_.size() + 1, 0);
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    if (!averages_[i].raw()) return;
    first[i + 1] = first[i] + averages_[i].elements();
  }
  if (!averages_.empty() && averages_[0].device() == DeviceKind::cuda) {
    for (const DType dtype : {DType::float32, DType::float64}) {
      std::vector<UpdateSegment> segments;
      for (std::size_t i = 0; i < averages_.size(); ++i)
        if (averages_[i].dtype() == dtype)
          segments.push_back(
              {.count = averages_[i].elements(), .value = averages_[i].raw(), .gradient = parameters_[i].value.raw()});
      cuda::update(dtype, segments, AverageRule{.rest = rest});
    }
    return;
  }
  detail::for_shares(
      averages_.size(), first.back(), [&](std::size_t s) { return first[s]; },
      [&](std::size_t s, std::int64_t begin, std::int64_t count) {
        const auto& p = parameters_[s].value;
        visit_floating(p.dtype(), [&](auto zero) {
          using T = decltype(zero);
          T* a = detail::as<T>(averages_[s].raw()) + begin;
          if (rest == 1) std::copy_n(p.data<T>() + begin, count, a);
          else average(a, p.data<T>() + begin, count, static_cast<T>(rest));
        });
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
