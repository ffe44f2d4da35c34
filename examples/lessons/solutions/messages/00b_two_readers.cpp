// The solution of exercise 0b, to lesson 0: a replay by hand.

#include "judge.h"
using namespace judge;

std::vector<double> backwards(const std::vector<double>& x, double abar, double cbar) {
  std::vector<double> xbar(3, 0.0);
  const double b = std::exp(x[2]);
  // ---- your lines
  const double bbar = cbar * x[1];
  xbar[1] += cbar * b;
  xbar[2] += bbar * b;
  xbar[0] += abar * x[1];
  xbar[1] += abar * x[0];
  // ----
  return xbar;
}

#include "messages/checks/00b_two_readers.inc"
