#include "models/simulation/global_dot.h"

#include <array>
#include <cmath>
#include <limits>

#include "comm/distributed/grid.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/to_device.h"

namespace mpigrad {

double global_dot(const Tensor& a, const Tensor& b, const Communicator& comm) {
  const auto &p = a.layout(), &q = b.layout();
  require(a.type() == b.type() && (p == q || (p && q && *p == *q)) && is_floating(a.dtype()),
          "[global_dot] takes floating-point tensors of one type and layout: {}, {}", a, b);
  require(!p || !p->has(Placement::partial), "[global_dot] of a partial sum: {}", a);
  require(a.device() != DeviceKind::dry, "[global_dot] the dry device has no elements: {}", a);
  Tensor products;
  {
    const Untaped scope;
    const auto of = [](const Tensor& x) { return cast(to(x.without_layout(), DeviceKind::cpu), DType::float64); };
    products = of(a) * of(b);
  }
  const double* x = products.data<double>();
  const auto n = products.elements();
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double size = std::abs(x[i]);
    largest = size <= std::numeric_limits<double>::max() ? std::max(largest, size) : std::numeric_limits<double>::infinity();
    if (std::isinf(largest)) break;
  }

  Communicator group = comm;
  if (p) {
    std::vector<int> split;
    for (std::size_t axis = 0; axis < p->axes.size(); ++axis)
      if (p->axes[axis].placement == Placement::split) split.push_back(static_cast<int>(axis));
    group = grid_of(*p).along(split);
  }
  const auto combine = [&](double* values, std::int64_t count, CombineOp op) {
    if (group && group.size() > 1) group.transport().allreduce(values, values, count, DType::float64, op);
  };
  double elements = static_cast<double>(p ? p->global.elements() : n);
  if (!p) combine(&elements, 1, CombineOp::sum);
  combine(&largest, 1, CombineOp::max);
  if (largest == 0) return 0;
  if (std::isinf(largest)) return std::numeric_limits<double>::quiet_NaN();

  // Of numbers below 2^e, the nearest multiples of 2^(e + bits - 51) have exact sums of up to 2^bits of them.
  const int bits = std::ilogb(elements) + 1;
  int e = std::ilogb(largest) + 1;
  std::array<double, 3> shifts{}, sums{};
  for (auto& shift : shifts) {
    shift = std::ldexp(1.5, e + bits + 1);
    e += bits - 51;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    double rest = x[i];
    for (std::size_t level = 0; level < 3; ++level) {
      const double part = (rest + shifts[level]) - shifts[level];
      sums[level] += part;
      rest -= part;
    }
  }
  combine(sums.data(), 3, CombineOp::sum);
  return sums[0] + (sums[1] + sums[2]);
}

double global_dot(const Tensors& a, const Tensors& b, const Communicator& comm) {
  require(a.size() == b.size(), "[global_dot] {} and {} tensors", a.size(), b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += global_dot(a[i], b[i], comm);
  return sum;
}

double global_norm(const Tensor& x, const Communicator& comm) { return std::sqrt(global_dot(x, x, comm)); }
double global_norm(const Tensors& x, const Communicator& comm) { return std::sqrt(global_dot(x, x, comm)); }

}  // namespace mpigrad
