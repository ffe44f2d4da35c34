#pragma once
// Layers that tests of the oracle are made of, and terms of its results.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>

#include "examples/studies/plan/planner/formulas/oracle.h"

namespace mpigrad::planner {

inline Layer layer(const char* kind, std::array<std::int64_t, 4> in, std::array<std::int64_t, 4> out, std::int64_t kernel,
                   double weights) {
  Layer made;
  made.name = made.kind = kind;
  made.in_extents = {in[0], in[1], in[2]}, made.in_channels = in[3];
  made.out_extents = {out[0], out[1], out[2]}, made.out_channels = out[3];
  made.kernel = {1, kernel, kernel};
  made.inputs = static_cast<double>(in[0] * in[1] * in[2] * in[3]);
  made.outputs = static_cast<double>(out[0] * out[1] * out[2] * out[3]);
  made.weights = weights;
  made.forward_flops = 2 * weights * static_cast<double>(out[0] * out[1] * out[2]);
  made.backward_flops = 2 * made.forward_flops;
  return made;
}
// Without a bias, which the authors' networks leave out.
inline Layer conv(std::int64_t n, std::int64_t channels, std::int64_t kernel, std::int64_t outputs, std::int64_t filters) {
  return layer("conv", {1, n, n, channels}, {1, outputs, outputs, filters}, kernel,
               static_cast<double>(kernel * kernel * channels * filters));
}
inline Layer linear(std::int64_t in, std::int64_t out) {
  return layer("linear", {1, 1, 1, in}, {1, 1, 1, out}, 1, static_cast<double>(in * out));
}

inline doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-13); }

inline double term(const OracleResult& result, const std::string& name) {
  for (const auto& each : result.terms)
    if (each.name == name) return each.seconds;
  FAIL("no term " << name);
  return 0;
}

}  // namespace mpigrad::planner
