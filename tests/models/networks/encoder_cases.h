#pragma once
// Whole networks with contrastive losses, split over samples and space at once: every grid must give the results of one rank.

#include <string>
#include <vector>

#include "comm/distributed/grid.h"
#include "framework/engine/parameter.h"

namespace mpigrad::testing {

struct EncoderCase {
  std::string name;
  Shape input;  // global shape of a view
};

// Each has a projection head: residual encoders and Conv-4 with NT-Xent, two towers with CLIP and a learned scale.
const std::vector<EncoderCase>& encoder_cases();

struct EncoderResult {
  double loss = 0;
  std::vector<std::string> names;
  std::vector<Tensor> gradients;  // of all parameters, including the learned scale
  std::vector<Tensor> running;    // running statistics after the step
};
EncoderResult run_encoder(const EncoderCase& encoder, const GridPtr& grid, DType dtype);

struct EncoderErrors {
  double gradient = 0;  // |g - expected| / |expected| over all parameters together
  double worst = 0;     // largest of one parameter, relative to the whole
  double running = 0;   // largest, relative to 1 + |expected|
  double loss = 0;      // relative error
};
EncoderErrors compare(const EncoderResult& found, const EncoderResult& expected);

}  // namespace mpigrad::testing
