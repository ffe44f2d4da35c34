#pragma once
// The data of all ranks as plain numbers that carry derivatives: the serial reference for functions that communicate.

#include <cmath>
#include <vector>

namespace mpigrad::testing {

// x + a s + b t + ab s t, s^2 = t^2 = 0: a value, its derivatives in two directions, and the mixed second one.
struct Jet {
  double v = 0, a = 0, b = 0, ab = 0;
};
inline Jet operator+(const Jet& x, const Jet& y) { return {x.v + y.v, x.a + y.a, x.b + y.b, x.ab + y.ab}; }
inline Jet operator-(const Jet& x, double c) { return {x.v - c, x.a, x.b, x.ab}; }
inline Jet operator*(const Jet& x, const Jet& y) {
  return {x.v * y.v, x.a * y.v + x.v * y.a, x.b * y.v + x.v * y.b, x.ab * y.v + x.a * y.b + x.b * y.a + x.v * y.ab};
}
inline Jet operator*(double c, const Jet& x) { return {c * x.v, c * x.a, c * x.b, c * x.ab}; }
inline Jet exp(const Jet& x) {
  const double e = std::exp(x.v);
  return {e, e * x.a, e * x.b, e * (x.ab + x.a * x.b)};
}
inline Jet log(const Jet& x) { return {std::log(x.v), x.a / x.v, x.b / x.v, x.ab / x.v - x.a * x.b / (x.v * x.v)}; }

using Row = std::vector<Jet>;   // the elements of a tensor
using Held = std::vector<Row>;  // the tensors of one rank
using All = std::vector<Held>;  // the tensors of every rank

}  // namespace mpigrad::testing
