#pragma once
// Rules: the values that a key of a recipe accepts.

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace mpigrad::trainer {

// The values that a key accepts, in addition to its type.
struct Rule {
  std::string text{};                                              // "above 0"; empty: every value
  std::vector<std::string> choices{};                              // for texts; empty: every text
  std::function<std::string(const std::string& value)> problem{};  // what is wrong with a value; "": nothing
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
};
// Finite numbers.
Rule any_number();
Rule above(double low);
Rule from(double low);
Rule between(double low, double high);  // both included
// Whole numbers in decimal digits.
Rule whole(std::int64_t low, std::int64_t high = std::numeric_limits<std::int64_t>::max());  // both included
Rule one_of(std::vector<std::string> choices);

}  // namespace mpigrad::trainer
