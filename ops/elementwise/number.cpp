#include "ops/elementwise/number.h"

#include <limits>

#include "framework/tensor/dtype.h"

namespace mpigrad {

Tensor Number::like(std::string_view op, const Tensor& x) const {
  const DType dtype = x.dtype();
  UseDevice device(x.device());
  if (is_floating(dtype)) return constant(full(Shape{}, value_, dtype));
  if (dtype == DType::boolean) {
    require(kind_ == Kind::boolean, "[{}] {} beside booleans: cast(x, DType::int64) first; x is {}", op, value_, x);
    return constant(full(Shape{}, value_, dtype));
  }
  require(kind_ != Kind::floating, "[{}] {} beside integers, which do not hold it: cast(x, DType::float64) first; x is {}", op,
          value_, x);
  bool fits = true;
  visit_any_integral(dtype, [&](auto zero) {
    using T = decltype(zero);
    fits = integer_ >= static_cast<std::int64_t>(std::numeric_limits<T>::lowest()) &&
           integer_ <= static_cast<std::int64_t>(std::numeric_limits<T>::max());
  });
  require(fits, "[{}] {} is out of the range of {}; x is {}", op, integer_, name_of(dtype), x);
  constexpr std::int64_t exact = std::int64_t{1} << 53;  // what a double holds
  if ((integer_ >= -exact && integer_ <= exact) || x.device() == DeviceKind::dry)
    return constant(full(Shape{}, static_cast<double>(integer_), dtype));
  Tensor number({Shape{}, DType::int64}, DeviceKind::cpu);
  *number.mutable_data<std::int64_t>() = integer_;
  return constant(detail::copied(number, x.device()));
}

}  // namespace mpigrad
