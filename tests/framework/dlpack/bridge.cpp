// The functions that dlpack.py calls by ctypes: a tensor that this library lends, and one that it takes from Python.

#include <dlpack/dlpack.h>

#include <memory>
#include <string>
#include <vector>

#include "framework/dlpack/dlpack.h"
#include "framework/engine/tape.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"

using namespace mpigrad;

namespace {
Tensor lent, taken;
std::weak_ptr<std::vector<double>> memory_of_lent;
std::string problem;
}  // namespace

extern "C" {

// float64 [2, 3] with 0 ... 5
DLManagedTensor* bridge_lend() {
  const auto memory = std::make_shared<std::vector<double>>(std::vector<double>{0, 1, 2, 3, 4, 5});
  memory_of_lent = memory;
  lent = Tensor::over(memory->data(), {2, 3}, DType::float64, DeviceKind::cpu, memory);
  return to_dlpack(lent);
}
double bridge_lent(int i) { return lent.data<double>()[i]; }
void bridge_write(int i, double value) { lent.mutable_data<double>()[i] = value; }
void bridge_drop() { lent = taken = {}; }
int bridge_holds() { return memory_of_lent.expired() ? 0 : 1; }

// The error, or "": then the tensor is taken.
const char* bridge_take(DLManagedTensor* managed) {
  problem.clear();
  try {
    taken = from_dlpack(managed);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  return problem.c_str();
}
const char* bridge_type() { return (problem = to_string(taken)).c_str(); }
double bridge_sum() {
  double sum = 0;
  for (const double value : taken.to_vector()) sum += value;
  return sum;
}
// Element i of the gradient of the sum of squares, which the tape computes from the memory of the other library.
double bridge_gradient(int i) {
  Tape tape;
  return tape.gradient(sum(square(taken)), {taken})[0].to_vector()[static_cast<std::size_t>(i)];
}
}
