#pragma once

#include "models/nn/layers.h"

namespace mpigrad::nn {

// gamma (x - mean) / deviation + beta of features [N, C], by statistics of all steps so far, which are constants to the gradient.
// For means over space: they differ little from sample to sample, and a batch may be one sample, which has no statistics of its
// own.
//
// Polynomially decaying averages (Shamir and Zhang 2013, eta = 3): step t counts with the weight (3 + 1) / (t + 3), so that half
// of an average is the last sixth of the steps, however many they were. Averages over a fixed number of steps
// change until the end of a training whose steps are one sample each, and its predictions with them. A number of steps below 0,
// in the buffer `steps`, says that the statistics stay as they are.
class RunningNorm : public Module {
 public:
  using Module::Module;
  Tensor operator()(const Tensor& x) override;
};

}  // namespace mpigrad::nn
