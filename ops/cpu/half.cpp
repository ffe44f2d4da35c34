#include "ops/cpu/half.h"

#include "ops/elementwise_ops.h"

namespace mpigrad::ops {
namespace {

TensorType wide(const TensorType& type) { return {type.shape, is_half(type.dtype) ? DType::float32 : type.dtype}; }

void convert(const Tensor& from, Tensor& to) { Cast{.to = to.dtype()}.run(Cpu{}, {&from, 1}, {&to, 1}); }

}  // namespace

bool any_half(Inputs in) {
  for (const auto& x : in)
    if (is_half(x.dtype())) return true;
  return false;
}

Tensors widened(Inputs in) {
  Tensors result(in.begin(), in.end());
  for (auto& x : result) {
    if (!is_half(x.dtype())) continue;
    Tensor copy(wide(x.type()), DeviceKind::cpu);
    convert(x, copy);
    x = copy;
  }
  return result;
}

Tensors wide_outputs(Outputs out) {
  Tensors result;
  for (const auto& y : out) result.push_back(is_half(y.dtype()) ? Tensor(wide(y.type()), DeviceKind::cpu) : y);
  return result;
}

void narrow(Inputs wide, Outputs out) {
  for (std::size_t i = 0; i < out.size(); ++i)
    if (is_half(out[i].dtype())) convert(wide[i], out[i]);
}

}  // namespace mpigrad::ops
