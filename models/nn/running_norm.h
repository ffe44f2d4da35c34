#pragma once

#include "models/nn/layers.h"

namespace mpigrad::nn {

// gamma (x - mean) / deviation + beta of features [N, C], by statistics of all steps so far, which are constants to the gradient.
// Meant for features that are means over space: they differ little from sample to sample, and a batch may be one sample, which
// has no statistics of its own.
//
// Polynomially decaying averages (Shamir and Zhang 2013, eta = 3): step t counts with the weight (3 + 1) / (t + 3), so the last
// sixth of the steps makes up half of an average, however many steps there were. Averages over a fixed number of steps would
// change until the end of a training whose steps are one sample each, and the predictions would change with them. A negative
// number of steps in the buffer `steps` freezes the statistics.
class RunningNorm : public Module {
 public:
  using Module::Module;
  Tensor operator()(const Tensor& x) override;
};

}  // namespace mpigrad::nn
