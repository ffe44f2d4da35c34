// Convolution of double: oneDNN does not support it on CPUs.

#include "ops/conv/conv_gathered.h"
#include "ops/conv/conv_kernels.h"

namespace mpigrad::cpu {

template <>
void conv_forward(const ConvProblem& p, const double* x, const double* w, double* y, const Epilogue& e) {
  gathered::conv_forward(p, x, w, y, e);
}

template <>
void conv_data(const ConvProblem& p, const double* gy, const double* w, double* gx, const Epilogue& e) {
  gathered::conv_data(p, gy, w, gx, e);
}

template <>
void conv_weight(const ConvProblem& p, const double* x, const double* gy, double* gw) {
  gathered::conv_weight(p, x, gy, gw);
}

}  // namespace mpigrad::cpu
