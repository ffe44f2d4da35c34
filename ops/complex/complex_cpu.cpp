#include "ops/complex/complex.h"
#include "ops/complex/complex_functions.h"
#include "ops/elementwise/row_walk.h"
#include "ops/kernel/parts.h"

namespace mpigrad::ops {
namespace {

template <class T>
using ComplexOf = scalar::Complex<T>;

// Calls f with a zero of the type of the parts.
template <class F>
void visit_parts(const Tensor& x, F&& f) {
  visit_floating(real_type(x.dtype()), f);
}
template <class A>
const A* elements_of(const Tensor& x) {
  return reinterpret_cast<const A*>(x.raw());
}

// y[i] = f(a[i]), n elements
template <class A, class R, class F>
void map_complex(const Tensor& a, Tensor& y, F f) {
  const A* from = elements_of<A>(a);
  R* to = reinterpret_cast<R*>(y.raw());
  const std::int64_t n = y.elements();
  cpu::for_parts(n, n >= parallel_from, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = f(from[i]);
  });
}

// y[i] = f(a[i], b[i]) with broadcasting
template <class A, class B, class R, class F>
void map_complex(const Tensor& a, const Tensor& b, Tensor& y, F f) {
  const A* pa = elements_of<A>(a);
  const B* pb = elements_of<B>(b);
  R* to = reinterpret_cast<R*>(y.raw());
  const auto walk = rows_of(y.shape(), broadcast_strides(a.shape(), y.shape()), broadcast_strides(b.shape(), y.shape()));
  const std::int64_t step_a = walk.strides[0][innermost(walk)], step_b = walk.strides[1][innermost(walk)];
  for_each_row(walk, [&](std::int64_t at, const std::array<std::int64_t, 2>& offsets, std::int64_t count) {
    const A* ra = pa + offsets[0];
    const B* rb = pb + offsets[1];
    R* ry = to + at;
    const F function = f;
    if (step_a == 1 && step_b == 1)
      for (std::int64_t i = 0; i < count; ++i) ry[i] = function(ra[i], rb[i]);
    else
      for (std::int64_t i = 0; i < count; ++i) ry[i] = function(ra[i * step_a], rb[i * step_b]);
  });
}

}  // namespace

void ComplexJoin::run(Cpu, Inputs in, Outputs out) const {
  visit_parts(out[0], [&](auto zero) {
    using T = decltype(zero);
    map_complex<T, T, ComplexOf<T>>(in[0], in[1], out[0], scalar::ComplexJoin{});
  });
}
void ComplexPart::run(Cpu, Inputs in, Outputs out) const {
  visit_parts(in[0], [&](auto zero) {
    using T = decltype(zero);
    map_complex<ComplexOf<T>, T>(in[0], out[0], scalar::ComplexPart{imaginary});
  });
}
void ComplexConj::run(Cpu, Inputs in, Outputs out) const {
  visit_parts(in[0], [&](auto zero) {
    using C = ComplexOf<decltype(zero)>;
    map_complex<C, C>(in[0], out[0], scalar::ComplexConj{});
  });
}
void ComplexAbs::run(Cpu, Inputs in, Outputs out) const {
  visit_parts(in[0], [&](auto zero) {
    using T = decltype(zero);
    map_complex<ComplexOf<T>, T>(in[0], out[0], scalar::ComplexAbs{});
  });
}
void ComplexProduct::run(Cpu, Inputs in, Outputs out) const {
  visit_parts(in[0], [&](auto zero) {
    using C = ComplexOf<decltype(zero)>;
    map_complex<C, C, C>(in[0], in[1], out[0], scalar::ComplexProduct{conjugate});
  });
}
void ComplexScale::run(Cpu, Inputs in, Outputs out) const {
  visit_parts(in[0], [&](auto zero) {
    using T = decltype(zero);
    map_complex<ComplexOf<T>, T, ComplexOf<T>>(in[0], in[1], out[0], scalar::ComplexScale{});
  });
}
void ComplexQuotient::run(Cpu, Inputs in, Outputs out) const {
  visit_parts(in[0], [&](auto zero) {
    using C = ComplexOf<decltype(zero)>;
    map_complex<C, C, C>(in[0], in[1], out[0], scalar::ComplexQuotient{conjugate});
  });
}

}  // namespace mpigrad::ops
