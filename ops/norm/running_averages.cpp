#include "ops/norm/running_averages.h"

#include "ops/norm/running_average.h"

namespace mpigrad {
namespace ops {

Types RunningAverages::infer(Inputs in) const {
  for (const auto& x : in)
    require(x.rank() == 1 && x.type() == in[0].type(),
            "[running_averages] needs one value for each channel, all of one type: {} and {}", in[0], x);
  return {};
}

void RunningAverages::run(Cpu, Inputs in, Outputs) const {
  visit_floating(in[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    const RunningAverage<T> average(momentum, correction);
    const T *mean = in[0].data<T>(), *variance = in[1].data<T>(), *batch_mean = in[2].data<T>(),
            *batch_variance = in[3].data<T>();
    Tensor new_mean = in[4], new_variance = in[5];
    T *to_mean = new_mean.mutable_data<T>(), *to_variance = new_variance.mutable_data<T>();
    for (std::int64_t c = 0; c < in[0].elements(); ++c) {
      to_mean[c] = average.mean(mean[c], batch_mean[c]);
      to_variance[c] = average.variance(variance[c], batch_variance[c]);
    }
  });
}

}  // namespace ops

void update_running(Tensor& mean, Tensor& variance, const BatchNormStatistics& batch, double momentum, double correction) {
  const auto room = [](const Tensor& x) { return x.device() == DeviceKind::cuda ? x : Tensor(x.type(), x.device()); };
  const auto to_mean = room(mean), to_variance = room(variance);
  apply_all(ops::RunningAverages{momentum, correction}, {mean, variance, batch.mean, batch.variance, to_mean, to_variance});
  mean = constant(to_mean), variance = constant(to_variance);
}

}  // namespace mpigrad
