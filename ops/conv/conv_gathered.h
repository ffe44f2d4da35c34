#pragma once
// The three convolutions as matrix products over gathered rows: what double uses, and float where oneDNN has nothing optimised.
// Same contract as the functions of conv_kernels.h. Any problem is right; few channels per group are slow.

#include "ops/conv/conv_kernels.h"

namespace mpigrad::cpu::gathered {

template <class T>
void conv_forward(const ConvProblem&, const T* x, const T* w, T* y, const Epilogue& = {});
template <class T>
void conv_data(const ConvProblem&, const T* gy, const T* w, T* gx, const Epilogue& = {});
template <class T>
void conv_weight(const ConvProblem&, const T* x, const T* gy, T* gw);

}  // namespace mpigrad::cpu::gathered
