#include "ops/loss/loss.h"

#include <algorithm>

namespace mpigrad::ops {

void LabelMask::run(Cpu, Inputs in, Outputs out) const {
  bool* y = out[0].mutable_data<bool>();
  std::fill_n(y, out[0].elements(), false);
  visit_any_integral(in[0].dtype(), [&](auto zero) {
    const auto* labels = in[0].data<decltype(zero)>();
    for (std::int64_t i = 0; i < in[0].elements(); ++i) {
      const auto label = static_cast<std::int64_t>(labels[i]);
      if (ignored && label == *ignored) continue;
      require(label >= 0 && label < classes, "[cross_entropy] label {} is not one of {} classes and not ignored: labels {}",
              label, classes, in[0]);
      y[i * classes + label] = true;
    }
  });
}

}  // namespace mpigrad::ops
