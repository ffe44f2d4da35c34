#pragma once
// Convolutions on the CPU as functions of shapes and pointers. Activations are [N, D, H, W, C], weights [K, kd, kh, kw,
// C/groups], row-major. They use no tensors and no tapes. Included inside ops, by kernel tests and by benchmarks only.
//
// Namespace `reference` has plain loops for float and double, which define the correct results. Functions outside it call a
// library where that is faster, and must agree with them.

#include <cstdint>

#include "ops/kernel/problems.h"

namespace mpigrad::cpu {

// y = conv(x, w) (+ bias, activation);  gx = adjoint in x of gy;  gw = adjoint in w of gy. Outputs are overwritten.
template <class T>
void conv_forward(const ConvProblem&, const T* x, const T* w, T* y, const Epilogue& = {});
template <class T>
void conv_data(const ConvProblem&, const T* gy, const T* w, T* gx, const Epilogue& = {});  // bias [C] on gx
template <class T>
void conv_weight(const ConvProblem&, const T* x, const T* gy, T* gw);

namespace reference {
template <class T>
void conv_forward(const ConvProblem&, const T* x, const T* w, T* y, const Epilogue& = {});
template <class T>
void conv_data(const ConvProblem&, const T* gy, const T* w, T* gx, const Epilogue& = {});
template <class T>
void conv_weight(const ConvProblem&, const T* x, const T* gy, T* gw);
}  // namespace reference

// In float for problems of few products, where a library's call takes longer than the products. On the calling thread; correct
// for any problem.
namespace small {
bool suits(const ConvProblem&);  // at most 4096 products
void conv_forward(const ConvProblem&, const float* x, const float* w, float* y, const Epilogue& = {});
void conv_data(const ConvProblem&, const float* gy, const float* w, float* gx, const Epilogue& = {});
void conv_weight(const ConvProblem&, const float* x, const float* gy, float* gw);
}  // namespace small

}  // namespace mpigrad::cpu
