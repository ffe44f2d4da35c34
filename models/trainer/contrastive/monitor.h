#pragma once
// Measures of the features after each epoch of contrastive training.

#include <cstdint>
#include <limits>
#include <vector>

#include "models/trainer/contrastive/encode.h"
#include "models/trainer/contrastive/options.h"

namespace mpigrad::contrast {

// Measures of features; NaN if undefined.
struct FeatureQuality {
  double neighbours = std::numeric_limits<double>::quiet_NaN();  // accuracy, if there are labels
  double deviation = std::numeric_limits<double>::quiet_NaN(), effective_rank = std::numeric_limits<double>::quiet_NaN();
};

// Some of the training samples, as many as schedule.monitor says, drawn at random; one half looks for neighbours in the other
// half.
class Monitor {
 public:
  Monitor(const TrainOptions& options, Network& net, const data::SourcePtr& source, const std::vector<std::int64_t>& samples,
          const Communicator& world, const EncodeAttributes& encode);
  FeatureQuality operator()() const;  // collective

 private:
  Network& net_;
  data::SourcePtr source_;
  Communicator world_;
  EncodeAttributes encode_;
  std::vector<std::int64_t> samples_;  // empty: too few to measure
  std::vector<double> labels_;
  std::vector<bool> in_bank_;
};

}  // namespace mpigrad::contrast
