#include "framework/engine/jvp.h"

namespace mpigrad {
namespace {

// y = x
struct Argument {
  static constexpr OpTraits traits() { return {.name = "argument", .takes_complex = true}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Cost cost(Inputs, Outputs) const { return {}; }
  LayoutPtr layout(Inputs in) const { return in[0].layout(); }
  Tensor view(Inputs in) const { return in[0].without_layout().as_variable(); }
  Tensors vjp(const Replay&, Inputs g) const { return {g[0]}; }
};

}  // namespace

Tensor detail::argument_of(const Tensor& x) { return x.is_constant() ? x.as_variable() : apply(Argument{}, {x}); }

Tensors jvp(const TensorFunction& f, const Tensors& x, const Tensors& v) {
  require(x.size() == v.size(), "[jvp] {} tensors and directions for {}", x.size(), v.size());
  Tensors at;
  for (std::size_t i = 0; i < x.size(); ++i) {
    require(x[i].type() == v[i].type() && is_differentiable(x[i].dtype()),
            "[jvp] x and its direction are floating-point or complex, of one type: x {} is {}, its direction {}", i, x[i], v[i]);
    at.push_back(detail::argument_of(x[i]));
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
