#include "framework/engine/jvp.h"

namespace mpigrad {

Tensors jvp(const TensorFunction& f, const Tensors& x, const Tensors& v) {
  require(x.size() == v.size(), "[jvp] {} tensors and directions for {}", x.size(), v.size());
  Tensors at;
  for (std::size_t i = 0; i < x.size(); ++i) {
    require(x[i].type() == v[i].type() && is_floating(x[i].dtype()),
            "[jvp] x and its direction are floating-point, of one type: x {} is {}, its direction {}", i, x[i], v[i]);
    for (std::size_t j = 0; j < i; ++j)
      require(x[i].id() != x[j].id(), "[jvp] x {} is x {} again, whose direction is another one: {}", i, j, x[i]);
    at.push_back(x[i].is_constant() ? x[i].as_variable() : x[i]);
  }

  Tape tape;
  const Tensors y = f(at);
  Tensors u;
  for (const auto& part : y) u.push_back(zeros_like(part).as_variable());
  const auto by_u = tape.vjp(tape.vjp(y, u, at, Record::yes), v, u);
  Tensors result;
  for (std::size_t i = 0; i < y.size(); ++i) result.push_back(by_u[i].with_layout(y[i].layout()));
  return result;
}

Tensor jvp(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, const Tensor& v) {
  return jvp([&](const Tensors& in) { return Tensors{f(in[0])}; }, Tensors{x}, Tensors{v})[0];
}

}  // namespace mpigrad
