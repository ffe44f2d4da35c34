#include "ops/random/random.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include "framework/engine/tape.h"
#include "ops/elementwise/elementwise.h"
#include "ops/kernel/parts.h"
#include "ops/reduce/reduce.h"

namespace mpigrad {
namespace {

// y[local index] = value(global index); the global index is the row-major position in the global tensor.
template <class Value>
Tensor generate(const Shape& shape, DType dtype, const LayoutPtr& layout, const ops::RandomNumbers& numbers, const Value& value) {
  Box box{shape, shape};
  for (auto& begin : box.begin) begin = 0;
  if (layout) box = layout->box();
  const Shape local = box.extents();
  Tensor result({local, dtype});
  if (result.device() == DeviceKind::dry) return layout ? result.with_layout(layout) : result;
  const auto strides = (layout ? layout->global : shape).strides();
  if (result.device() == DeviceKind::cuda) {
    ops::random_on_gpu(numbers, box, layout ? layout->global : shape, result);
    return layout ? result.with_layout(layout) : result;
  }
  visit_any_floating(dtype, [&](auto zero) {
    using T = decltype(zero);
    T* y = result.mutable_data<T>();
    const std::int64_t length = local.rank() ? local.back() : 1, rows = length ? local.elements() / length : 0;
    cpu::for_parts(rows, rows * length > 4096, [&](std::int64_t low, std::int64_t high) {
      for (std::int64_t r = low; r < high; ++r) {
        std::int64_t rest = r, at = local.rank() ? box.begin[local.rank() - 1] : 0;
        for (int d = local.rank() - 2; d >= 0; --d) {
          at += (box.begin[d] + rest % local[d]) * strides[static_cast<std::size_t>(d)];
          rest /= local[d];
        }
        for (std::int64_t i = 0; i < length; ++i) y[r * length + i] = static_cast<T>(value(static_cast<std::uint64_t>(at + i)));
      }
    });
  });
  return layout ? result.with_layout(layout) : result;
}

void require_global(const char* op, const Shape& shape, const LayoutPtr& layout) {
  require(!layout || layout->global == shape, "[{}] the shape is the global one of the layout: {}, layout of {}", op, shape,
          layout ? layout->global : shape);
}

template <class T>
T next_below(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::nextafter(x, -std::numeric_limits<T>::infinity());
  else if (x == 0) return T::from_bits(0x8001);
  else return T::from_bits(static_cast<std::uint16_t>(x > 0 ? x.bits() - 1 : x.bits() + 1));
}

double largest_below(double bound, DType dtype) {
  return visit_any_floating(dtype, [&](auto zero) {
    auto value = static_cast<decltype(zero)>(bound);
    if (static_cast<double>(value) >= bound) value = next_below(value);
    return static_cast<double>(value);
  });
}

// A complex tensor of which f makes the real numbers, given their shape, type and layout.
template <class F>
Tensor with_random_parts(Shape shape, DType dtype, const LayoutPtr& layout, const F& f) {
  LayoutPtr of_parts;
  if (layout) {
    Layout longer = *layout;
    longer.global.push_back(2);
    of_parts = std::make_shared<Layout>(std::move(longer));
  }
  shape.push_back(2);
  const Tensor parts = f(shape, real_type(dtype), of_parts);
  const Shape local(parts.shape().span().first(static_cast<std::size_t>(parts.rank() - 1)));
  return Tensor({local, dtype}, parts.storage(), parts.offset()).with_layout(layout);
}

}  // namespace

Tensor random_uniform(const Shape& shape, const Philox& random, double low, double high, DType dtype, LayoutPtr layout) {
  require_global("random_uniform", shape, layout);
  if (is_complex(dtype))
    return with_random_parts(shape, dtype, layout, [&](const Shape& parts, DType type, const LayoutPtr& of_parts) {
      return random_uniform(parts, random, low, high, type, of_parts);
    });
  // Rounding could give `high`, which is excluded: the limit is the largest number below it.
  double limit = std::numeric_limits<double>::infinity();
  if (low < high) limit = largest_below(high, dtype);
  return generate(shape, dtype, layout, {ops::RandomNumbers::Kind::uniform, random, low, high - low, limit},
                  [&](std::uint64_t i) { return std::min(low + (high - low) * random.uniform(i), limit); });
}

Tensor random_normal(const Shape& shape, const Philox& random, double mean, double deviation, DType dtype, LayoutPtr layout) {
  require_global("random_normal", shape, layout);
  if (is_complex(dtype))
    return with_random_parts(shape, dtype, layout, [&](const Shape& parts, DType type, const LayoutPtr& of_parts) {
      return random_normal(parts, random, mean, deviation, type, of_parts);
    });
  return generate(shape, dtype, layout, {ops::RandomNumbers::Kind::normal, random, mean, deviation, 0},
                  [&](std::uint64_t i) { return mean + deviation * random.normal(i); });
}

Tensor random_integers(const Shape& shape, const Philox& random, std::int64_t low, std::int64_t high, DType dtype,
                       LayoutPtr layout) {
  const auto count = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  require(low < high && count <= std::uint64_t{1} << 53, "[random_integers] numbers from {} to below {}", low, high);
  require(!is_floating(dtype) && dtype != DType::boolean, "[random_integers] an integer type is needed, not {}", name_of(dtype));
  visit_any_integral(dtype, [&](auto zero) {
    using T = decltype(zero);
    require(low >= std::int64_t{std::numeric_limits<T>::min()} && high - 1 <= std::int64_t{std::numeric_limits<T>::max()},
            "[random_integers] {} does not hold all numbers from {} to below {}", name_of(dtype), low, high);
  });
  const Untaped scope;
  // The cast truncates to the integer below, because no number is negative.
  const auto place = random_uniform(shape, random, 0, static_cast<double>(count), DType::float64, std::move(layout));
  return constant(cast(cast(place, DType::int64) + low, dtype));
}

Tensor permutation(std::int64_t n, const Philox& random) {
  require(n >= 0, "[permutation] {} numbers", n);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::uint64_t> key(order.size());
  for (std::size_t i = 0; i < key.size(); ++i) {
    const auto words = random.words(i);
    key[i] = (std::uint64_t{words[0]} << 32) | words[1];
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return key[static_cast<std::size_t>(a)] < key[static_cast<std::size_t>(b)]; });
  return constant(from_vector(Shape{n}, std::vector<double>(order.begin(), order.end()), DType::int64));
}

namespace {

// Uniform numbers in float64, one per element of x, on x's device.
Tensor uniform_beside(const Tensor& x, const Philox& random) {
  UseDevice device(x.device());
  return random_uniform(global_shape(x), random, 0, 1, DType::float64, x.layout());
}

}  // namespace

Tensor categorical(const Tensor& logits, const Philox& random) {
  require(logits.rank() >= 1 && is_floating(logits.dtype()), "[categorical] needs floating-point logits [..., C]: {}", logits);
  const Untaped scope;
  const auto noise = log(-log(uniform_beside(logits, random)));
  return constant(argmax(cast(constant(logits), DType::float64) - noise, -1));
}

Tensor bernoulli(const Tensor& p, const Philox& random) {
  require(is_floating(p.dtype()), "[bernoulli] needs floating-point probabilities: {}", p);
  const Untaped scope;
  return constant(cast(uniform_beside(p, random) < cast(constant(p), DType::float64), p.dtype()));
}

namespace {

// `random` and `numbers` describe the same mask, for the CPU and for a GPU.
Tensor masked(const Tensor& x, double keep, const Philox& random, const ops::RandomNumbers& numbers) {
  require(is_floating(x.dtype()), "[dropout] needs floating-point elements: {}", x);
  require(keep > 0 && keep <= 1, "[dropout] the probability to keep is in (0, 1], got {}", keep);
  if (keep == 1) return x;
  UseDevice device(x.device());
  const auto mask = generate(x.shape(), x.dtype(), x.layout(), numbers,
                             [&](std::uint64_t i) { return random.uniform(i) < keep ? 1 / keep : 0; });
  return x * constant(mask);
}

}  // namespace

Tensor dropout(const Tensor& x, double keep, const Philox& random) {
  return masked(x, keep, random, {ops::RandomNumbers::Kind::mask, random, keep, 1 / keep, 0});
}
Tensor dropout(const Tensor& x, double keep, const Philox& random, std::uint64_t step) {
  return masked(x, keep, random.child(step), {ops::RandomNumbers::Kind::mask, random, keep, 1 / keep, 0, step});
}

}  // namespace mpigrad
