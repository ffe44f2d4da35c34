// Tensors for tests/framework/tensor/gdb_printer.sh, which stops in look() and prints the tensors of main().

#include "framework/tensor/tensor.h"

using namespace mpigrad;

namespace {

struct Tensors {
  Tensor none, matrix = from_vector({2, 3}, {1, 2.5, -3, 4, 5, 6}), scalar = from_vector({}, {7}, DType::int64),
               half = from_vector({2}, {0.5, -2}, DType::bfloat16), truths = from_vector({2}, {1, 0}, DType::boolean),
               many = arange(100, DType::int32), dry;
};

__attribute__((noinline)) void look(const Tensors& tensors) { asm volatile("" : : "r"(&tensors) : "memory"); }

}  // namespace

int main() {
  Tensors tensors;
  const UseDevice device(DeviceKind::dry);
  tensors.dry = zeros({4});
  look(tensors);
}
