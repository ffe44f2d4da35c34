#pragma once
// What versions of cuDNN are known to compute wrongly without saying so. Host logic without the vendor's header.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "ops/backends/cudnn/conv_call.h"

namespace mpigrad::cuda {

struct Defect {
  std::size_t first, end;  // versions, as cudnnGetVersion() has them: 91002 is 9.10.2
  bool (*concerns)(const ConvCall& call);
  const char *what, *source;
  bool float32_instead;                         // otherwise such a call is not made, and others compute the problem
  std::array<std::int64_t, 2> engines{-1, -1};  // of these alone, which are not taken for such a call; else of all
};

// Null if none is known of such a call, or if MPIGRAD_CUDNN_DEFECTS=ignore says that this library is sound.
const Defect* defect_of(std::size_t version, const ConvCall& call);
// The same of one engine among those that such a call may be given to.
const Defect* defect_of_engine(std::size_t version, const ConvCall& call, std::int64_t engine);
// "cuDNN 9.10.2 computes ... wrongly (SOURCE); ..."
std::string text_of(const Defect& defect, std::size_t version);

}  // namespace mpigrad::cuda
