#include "comm/check/stacked.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "comm/distributed/grid.h"
#include "framework/tensor/random.h"

namespace mpigrad {
namespace detail {

double over_ranks(const Communicator& comm, double value, CombineOp op) {
  comm.transport().allreduce(&value, &value, 1, DType::float64, op);
  return value;
}

double coarsest_epsilon(const Communicator& comm, const Tensors& a, const Tensors& b) {
  double coarsest = std::numeric_limits<double>::epsilon();
  for (const auto* list : {&a, &b})
    for (const auto& x : *list) {
      if (real_type(x.dtype()) == DType::float32) coarsest = std::max(coarsest, std::ldexp(1.0, -23));
      if (x.dtype() == DType::float16) coarsest = std::max(coarsest, std::ldexp(1.0, -10));
      if (x.dtype() == DType::bfloat16) coarsest = std::max(coarsest, std::ldexp(1.0, -7));
    }
  return over_ranks(comm, coarsest, CombineOp::max);
}

TensorFunction differentiable_outputs(const TensorFunction& f) {
  return [&f](const Tensors& x) {
    Tensors y = f(x);
    std::erase_if(y, [](const Tensor& part) { return !part || !is_differentiable(part.dtype()); });
    return y;
  };
}

const Tensors& floating_inputs(const char* what, const Tensors& x) {
  for (const auto& each : x)
    require(each && is_differentiable(each.dtype()), "[{}] inputs are floating-point or complex tensors: {}", what, each);
  return x;
}

Tensors moved(const Tensors& x, double t, const Tensors& v) {
  Tensors result;
  for (std::size_t i = 0; i < x.size(); ++i) {
    auto values = x[i].without_layout().to_vector();
    const auto direction = v[i].without_layout().to_vector();
    if (t != 0)
      for (std::size_t j = 0; j < values.size(); ++j) values[j] += t * direction[j];
    result.push_back(from_vector(x[i].shape(), values, x[i].dtype()).with_layout(x[i].layout()));
  }
  return result;
}

Stacked::Stacked(const Communicator& comm, const Tensors& like, const std::vector<Across>& across, Role role)
    : comm_(comm), like_(like) {
  for (std::size_t i = 0; i < like.size(); ++i)
    places_.push_back(place(comm, like[i], i < across.size() ? across[i] : Across::varying, role));
}

Stacked::Place Stacked::place(const Communicator& comm, const Tensor& x, Across across, Role role) {
  Place result;
  if (!x.layout()) {
    if (across == Across::varying) return {.key = static_cast<std::uint64_t>(comm.rank()) + 1, .counts = true, .group = {}};
    return {.key = 0, .counts = comm.rank() == 0, .group = comm};
  }
  const auto& layout = *x.layout();
  const auto at = layout.grid->coordinates(layout.grid->rank);
  std::vector<int> axes;
  for (std::size_t a = 0; a < at.size(); ++a) {
    const auto placement = layout.axes[a].placement;
    result.counts = result.counts && (placement != Placement::replicated || at[a] == 0);
    const bool same = placement == Placement::replicated || (placement == Placement::partial && role == Role::cotangent);
    if (same) axes.push_back(static_cast<int>(a));
    else result.key = result.key * 1000 + static_cast<std::uint64_t>(at[a]) + 1;
  }
  result.group = grid_of(layout).along(axes);
  return result;
}

Tensors Stacked::random(std::uint64_t seed, std::uint64_t purpose) const {
  Tensors result;
  for (std::size_t i = 0; i < like_.size(); ++i) {
    const auto key = Philox{.key = seed, .stream = purpose}.child(places_[i].key * 100 + i).key;
    result.push_back(random_like({like_[i]}, key)[0].with_layout(like_[i].layout()));
  }
  return result;
}

double Stacked::inner(const Tensors& a, const Tensors& b) const {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (places_[i].counts) sum += inner_product({a[i]}, {b[i]});
  return over_ranks(comm_, sum);
}

double Stacked::norm(const Tensors& a) const { return std::sqrt(inner(a, a)); }

double Stacked::elements() const {
  double elements = 0;
  for (std::size_t i = 0; i < like_.size(); ++i)
    elements += places_[i].counts ? static_cast<double>(like_[i].elements() * parts_of(like_[i].dtype())) : 0;
  return over_ranks(comm_, elements);
}

double Stacked::drift(std::size_t i, const Tensor& x) const {
  const auto& group = places_[i].group;
  double largest = 0;
  if (group && group.size() > 1) {
    const auto values = x.without_layout().to_vector();
    auto first = values;
    group.transport().bcast(first.data(), static_cast<std::int64_t>(first.size()), DType::float64, 0);
    for (std::size_t j = 0; j < values.size(); ++j)
      if (!(values[j] == first[j] || (std::isnan(values[j]) && std::isnan(first[j])))) {
        const double apart = std::abs(values[j] - first[j]) / std::max(1.0, std::abs(first[j]));
        largest = std::max(largest, std::isfinite(apart) ? apart : 1e300);
      }
  }
  return over_ranks(comm_, largest, CombineOp::max);
}

}  // namespace detail

double inner_product(const Tensors& a, const Tensors& b) {
  require(a.size() == b.size(), "[inner_product] {} and {} tensors", a.size(), b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    require(a[i].shape() == b[i].shape(), "[inner_product] shapes differ: {} and {}", a[i], b[i]);
    const auto x = a[i].without_layout().to_vector(), y = b[i].without_layout().to_vector();
    for (std::size_t j = 0; j < x.size(); ++j) sum += x[j] * y[j];
  }
  return sum;
}

Tensors random_like(const Tensors& like, std::uint64_t seed) {
  Tensors result;
  for (std::size_t i = 0; i < like.size(); ++i) {
    const Philox random{.key = seed, .stream = i};
    std::vector<double> values(static_cast<std::size_t>(like[i].elements() * parts_of(like[i].dtype())));
    for (std::size_t j = 0; j < values.size(); ++j) values[j] = 2 * random.uniform(j) - 1;
    result.push_back(from_vector(like[i].shape(), values, like[i].dtype()));
  }
  return result;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return 1e300;
  const auto x = a.without_layout().to_vector(), y = b.without_layout().to_vector();
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    const double error = std::abs(x[i] - y[i]) / std::max(1.0, std::abs(y[i]));
    largest = std::max(largest, std::isfinite(error) ? error : 1e300);
  }
  return largest;
}

}  // namespace mpigrad
