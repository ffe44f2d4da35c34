#pragma once
// Layers that tests of the oracle are made of, and terms of its results.

#include <doctest/doctest.h>

#include <string>

#include "examples/studies/plan/figures/paradl_layers.h"
#include "examples/studies/plan/planner/formulas/oracle.h"

namespace mpigrad::planner {

inline doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-13); }

inline double term(const OracleResult& result, const std::string& name) {
  for (const auto& each : result.terms)
    if (each.name == name) return each.seconds;
  FAIL("no term " << name);
  return 0;
}

}  // namespace mpigrad::planner
