#pragma once
// What versions of cuDNN are known to compute wrongly without saying so. Host logic without the vendor's header.

#include <cstddef>
#include <string>

#include "ops/cuda/libraries/conv_call.h"

namespace mpigrad::cuda {

struct Defect {
  std::size_t first, end;  // versions, as cudnnGetVersion() has them: 91002 is 9.10.2
  bool (*concerns)(const ConvCall& call);
  const char *what, *source;
  bool float32_instead;  // otherwise such a call is not made, and others compute the problem
};

// Null if none is known of such a call, or if MPIGRAD_CUDNN_DEFECTS=ignore says that this library is sound.
const Defect* defect_of(std::size_t version, const ConvCall& call);
// "cuDNN 9.10.2 computes ... wrongly (SOURCE); ..."
std::string text_of(const Defect& defect, std::size_t version);

}  // namespace mpigrad::cuda
