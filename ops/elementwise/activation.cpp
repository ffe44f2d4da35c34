#include "ops/elementwise/activation.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <type_traits>

#include "framework/base/joined.h"
#include "ops/elementwise/activation_adjoints.h"
#include "ops/elementwise/activation_ops.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"

namespace mpigrad {

namespace {

// The op of an activation with derivatives of its own.
template <class F>
Tensor apply_activation(const Tensor& x, [[maybe_unused]] double parameter = 0) {
  ops::Unary<F> op;
  if constexpr (!std::is_empty_v<typename F::Scalar>) static_cast<typename F::Scalar&>(op.f) = {parameter};
  return mpigrad::apply(op, {x});
}

}  // namespace

Tensor elu(const Tensor& x, double alpha) { return apply_activation<ops::Elu>(x, alpha); }
#define MPIGRAD_MAKE(F, name, ...) \
  Tensor name(const Tensor& x) { return apply_activation<ops::F>(x); }
MPIGRAD_PLAIN_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE)
#undef MPIGRAD_MAKE

Tensor activate(const Tensor& x, Activation activation) {
  switch (activation.kind()) {
    case ActivationKind::none: return x;
    case ActivationKind::relu:
    case ActivationKind::leaky_relu: return leaky_relu(x, activation.parameter());
#define MPIGRAD_MAKE(F, name, ...) \
  case ActivationKind::name: return name(x);
      MPIGRAD_COMPOSED_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
#define MPIGRAD_MAKE(F, name, ...) \
  case ActivationKind::name: return apply_activation<ops::F>(x, activation.parameter());
      MPIGRAD_DERIVED_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
  }
  fail("[activation] no activation has number {}", static_cast<int>(activation.kind()));
}

namespace {

constexpr std::string_view names[]{
    "none", "relu", "leaky_relu",
#define MPIGRAD_MAKE(F, name, ...) #name,
    MPIGRAD_COMPOSED_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE) MPIGRAD_DERIVED_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
};
constexpr Activation without_parameter[]{Activation::none, Activation::relu, Activation::leaky_relu(),
#define MPIGRAD_MAKE(F, name, ...) Activation::name,
                                         MPIGRAD_COMPOSED_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE)
                                             MPIGRAD_PLAIN_ACTIVATIONS(MPIGRAD_ROW_AS_IS, MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
                                                 Activation::elu()};

}  // namespace

std::string_view name_of(ActivationKind kind) { return names[static_cast<std::size_t>(kind)]; }

std::string to_string(Activation activation) {
  const auto name = name_of(activation.kind());
  const bool has_parameter = activation.kind() == ActivationKind::leaky_relu || activation.kind() == ActivationKind::elu;
  return has_parameter ? fmt::format("{}({})", name, activation.parameter()) : std::string(name);
}

Activation activation_of(std::string_view text) {
  const auto open = text.find('('), length = std::min(open, text.size());
  std::optional<double> parameter;
  if (open != text.npos && text.ends_with(')')) {
    double value = 0;
    const auto *begin = text.data() + open + 1, *end = text.data() + text.size() - 1;
    if (const auto read = std::from_chars(begin, end, value); read.ec == std::errc() && read.ptr == end) parameter = value;
  }
  if ((open == text.npos) != parameter.has_value()) {
    const auto name = text.substr(0, length);
    if (parameter && name == "leaky_relu") return Activation::leaky_relu(*parameter);
    if (parameter && name == "elu") return Activation::elu(*parameter);
    for (const auto& known : without_parameter)
      if (!parameter && name == name_of(known.kind())) return known;
  }
  fail("[activation] \"{}\" is none of {}; leaky_relu and elu take a number in parentheses", text, joined(names, ", "));
}

namespace ops {

Types BiasActivation::infer(Inputs in) const {
  const auto &x = in[0], &bias = in[1];
  require(x.rank() >= 1 && is_floating(x.dtype()), "[{}] needs floating-point elements, channels last: {}", traits().name, x);
  require(bias.type() == TensorType{Shape{x.dim(-1)}, x.dtype()},
          "[{}] bias has one element for each of {} channels, of their type {}: {} for {}", traits().name, x.dim(-1),
          name_of(x.dtype()), bias, x);
  return {x.type()};
}
Tensors BiasActivation::vjp(const Replay& at, Inputs g) const {
  auto inner = bias_activation_adjoint(g[0], at.output(0), fused, {.of_bias = at.wants(1), .may_overwrite = true});
  return {std::move(inner.x), std::move(inner.bias)};
}

Types BiasActivationAdjoint::infer(Inputs in) const {
  const auto &g = in[0], &y = in[1];
  require(g.rank() >= 1 && is_floating(g.dtype()), "[{}] needs floating-point elements, channels last: {}", traits().name, g);
  require(g.type() == y.type(), "[{}] the cotangent and the result have different types: {} and {}", traits().name, g, y);
  return {g.type(), {Shape{g.dim(-1)}, g.dtype()}};
}
Tensor BiasActivationAdjoint::reuse(Inputs in) const {
  return in_place ? Tensor(in[0].type(), in[0].storage(), in[0].offset()) : Tensor();
}
Tensors BiasActivationAdjoint::vjp(const Replay& at, Inputs bar) const {
  return {leaky_relu_adjoint(bar[0] + bar[1], at.input(1), fused), {}};
}

}  // namespace ops

Tensor local::bias_activation(const Tensor& x, const Tensor& bias, Activation activation) {
  if (!bias) return activate(x, activation);
  return fused_or_behind(activation, [&](auto fused) { return mpigrad::apply(ops::BiasActivation{fused}, {x, bias}); });
}

BiasActivationCotangents bias_activation_adjoint(const Tensor& g, const Tensor& y, scalar::Fused fused,
                                                 const BiasActivationAdjointOptions& o) {
  if (!fused.is_none() && o.of_bias) {
    const bool in_place = o.may_overwrite && sole_owner(g);  // checked before the call copies the handle
    const auto both = apply_all(ops::BiasActivationAdjoint{fused, in_place}, {g, y});
    return {both[0], both[1]};
  }
  const auto inner = fused.is_none() ? g : leaky_relu_adjoint(g, y, fused, o.may_overwrite);
  if (!o.of_bias) return {inner, {}};
  std::vector<int> rows;
  for (int d = 0; d + 1 < g.rank(); ++d) rows.push_back(d);
  return {inner, sum(inner, rows)};
}

}  // namespace mpigrad
