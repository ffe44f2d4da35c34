#include "framework/engine/half_operands.h"

#include "framework/tensor/half_rows.h"

namespace mpigrad::detail {
namespace {

template <class From, class To>
void convert_all(const Tensor& from, Tensor& to) {
  constexpr std::int64_t chunk = 1 << 14;
  const std::int64_t n = from.elements();
  const From* x = from.data<From>();
  To* y = to.mutable_data<To>();
#pragma omp parallel for schedule(static) if (n > chunk)
  for (std::int64_t begin = 0; begin < n; begin += chunk) convert(x + begin, y + begin, n - begin < chunk ? n - begin : chunk);
}

Tensor as_float32(const Tensor& x) { return Tensor({x.shape(), DType::float32}, DeviceKind::cpu); }

}  // namespace

bool any_half(Inputs in, Outputs out) {
  for (const auto& x : in)
    if (x && is_half(x.dtype())) return true;
  for (const auto& y : out)
    if (is_half(y.dtype())) return true;
  return false;
}

Tensors widened(Inputs in) {
  Tensors result(in.begin(), in.end());
  for (auto& x : result) {
    if (!x || !is_half(x.dtype())) continue;
    Tensor wide = as_float32(x);
    if (x.dtype() == DType::bfloat16) convert_all<BFloat16, float>(x, wide);
    else convert_all<Float16, float>(x, wide);
    x = wide;
  }
  return result;
}

Tensors wide_outputs(Outputs out) {
  Tensors result;
  for (const auto& y : out) result.push_back(is_half(y.dtype()) ? as_float32(y) : y);
  return result;
}

void narrow(Inputs wide, Outputs out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i].dtype() == DType::bfloat16) convert_all<float, BFloat16>(wide[i], out[i]);
    if (out[i].dtype() == DType::float16) convert_all<float, Float16>(wide[i], out[i]);
  }
}

}  // namespace mpigrad::detail
