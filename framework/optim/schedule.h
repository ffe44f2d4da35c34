#pragma once
// Learning-rate schedules: small values that map a step, counted from 0, to a rate.
//
//   const schedule::WarmUp rate{.steps = 500, .then = schedule::Cosine{.rate = 1e-3, .steps = 10000}};
//   optimizer.set_learning_rate(rate(step));

#include <cstdint>
#include <functional>
#include <vector>

namespace mpigrad {

// Any of the types below, or a function of the user.
using Schedule = std::function<double(std::int64_t step)>;

namespace schedule {

struct Constant {
  double rate = 1e-3;
  double operator()(std::int64_t step) const;
};

// Half a cosine from rate to `final_rate` over `steps`, `final_rate` from then on:
// final + (rate - final) (1 + cos(pi step / steps)) / 2
struct Cosine {
  double rate = 1e-3;
  std::int64_t steps = 1;
  double final_rate = 0;
  double operator()(std::int64_t step) const;
};

// rate, multiplied by `factor` at each milestone (a step; ascending).
struct Step {
  double rate = 1e-3;
  std::vector<std::int64_t> milestones{};
  double factor = 0.1;
  double operator()(std::int64_t step) const;
};

// final + (rate - final) (1 - step / steps)^power, `final_rate` from `steps` on; power 1 is linear.
struct Polynomial {
  double rate = 1e-3;
  std::int64_t steps = 1;
  double final_rate = 0;
  double power = 1;
  double operator()(std::int64_t step) const;
};

// Linear from `from` at step 0 to then(0) at step `steps`; from there on then(step - steps).
struct WarmUp {
  std::int64_t steps = 0;
  Schedule then{Constant{}};
  double from = 0;
  double operator()(std::int64_t step) const;
};

}  // namespace schedule
}  // namespace mpigrad
