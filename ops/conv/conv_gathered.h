#pragma once
// The three convolutions as matrix products over gathered rows: used for double, and for float where oneDNN has no optimised
// kernel. Same contract as the functions of conv_kernels.h. Correct for any problem; slow with few channels per group.

#include "ops/conv/conv_kernels.h"

namespace mpigrad::cpu::gathered {

template <class T>
void conv_forward(const ConvProblem&, const T* x, const T* w, T* y, const Epilogue& = {});
template <class T>
void conv_data(const ConvProblem&, const T* gy, const T* w, T* gx, const Epilogue& = {});
template <class T>
void conv_weight(const ConvProblem&, const T* x, const T* gy, T* gw);

}  // namespace mpigrad::cpu::gathered
