// Exercise 0b, to lesson 0: a replay by hand.
//
// The program is a = x_0 x_1, b = exp(x_2), c = x_1 b, and its result is (a, c). Given the cotangents of a and c, go from the
// last step to the first and fill in xbar. x_1 has two readers.
//
//   make 00b

#include "judge.h"
using namespace judge;

std::vector<double> backwards(const std::vector<double>& x, double abar, double cbar) {
  std::vector<double> xbar(3, 0.0);
  const double b = std::exp(x[2]);
  // ---- your lines
  // xbar[0] = abar * x[1] + 0 * b * cbar;  // and the others
  // ---- solution
  const double bbar = cbar * x[1];
  xbar[1] += cbar * b;
  xbar[2] += bbar * b;
  xbar[0] += abar * x[1];
  xbar[1] += abar * x[0];
  // ----
  return xbar;
}

#include "messages/checks/00b_two_readers.inc"
