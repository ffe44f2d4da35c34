#pragma once
// Problems that versions of cuDNN are known to compute wrongly without an error. Host logic without the vendor's header.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "ops/backends/cudnn/conv_call.h"

namespace mpigrad::cuda {

struct Defect {
  std::size_t first, end;  // first <= version < end, encoded as by cudnnGetVersion(): 91002 is 9.10.2
  bool (*concerns)(const ConvCall& call);
  const char *what, *source;
  bool float32_instead;                         // if false, cuDNN is not called and other kernels compute the problem
  std::array<std::int64_t, 2> engines{-1, -1};  // only these engines are affected and avoided for such a call; by default all are
};

// Null if no defect of such a call is known, or if MPIGRAD_CUDNN_DEFECTS=ignore switches these rules off.
const Defect* defect_of(std::size_t version, const ConvCall& call);
// The defect of one engine, among the engines that may compute such a call.
const Defect* defect_of_engine(std::size_t version, const ConvCall& call, std::int64_t engine);
// "cuDNN 9.10.2 computes ... wrongly (SOURCE); ..."
std::string text_of(const Defect& defect, std::size_t version);

}  // namespace mpigrad::cuda
