#include "ops/external.h"

#include <mutex>
#include <set>
#include <utility>

namespace mpigrad {

namespace detail {
struct ExternalFunction {
  std::string name;
  ExternalForward forward;
  ExternalAdjoint adjoint;  // or vjp
  Vjp vjp;
  ExternalOptions options;
  std::string_view lasting_name, lasting_adjoint_name;  // tapes and logs refer to names
};
}  // namespace detail

namespace {

using Function = std::shared_ptr<const detail::ExternalFunction>;
using Names = std::set<std::string, std::less<>>;

std::mutex names_mutex;

// The same text for the rest of the process.
std::string_view lasting(const std::string& name) {
  static Names* names = new Names;
  const std::lock_guard lock(names_mutex);
  return *names->insert(name).first;
}

// Runs call(out), a function of the program, without recording, and checks what it leaves in `out`.
template <class Call>
void run_program(const detail::ExternalFunction& f, const char* what, DeviceKind device, Outputs out, const Call& call) {
  if (device == DeviceKind::dry) return;
  if (device == DeviceKind::cuda && !f.options.runs_on_gpu)
    fail("[{}] runs on CPUs only: set runs_on_gpu in its options, or copy its operands with to(x, DeviceKind::cpu)", f.name);
  const Untaped scope;
  const Tensors made(out.begin(), out.end());
  call(out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    auto& y = out[i];
    if (!made[i] && !y) continue;
    require(y && made[i] && y.type() == made[i].type() && y.device() == device,
            "[{}] its {} {} is now {}, but must stay {} on device {}", f.name, what, i, y, made[i], name_of(device));
    if (y.storage() == made[i].storage()) y = made[i];
    else y = y.storage() && y.storage()->foreign() ? detail::copied(y, device) : y.without_layout().as_variable();
  }
}

// xbar = J(x)^T ybar, by the program's adjoint.
struct ExternalAdjointOp {
  Function function;
  Tensors x, y, ybar;       // without elements
  std::vector<bool> given;  // which of them, one after the other, are operands
  std::vector<bool> wants;

  static constexpr OpTraits traits() { return {.name = "external adjoint", .takes_half = true}; }
  static bool has_cotangent(const Tensor& x) { return x && is_differentiable(x.dtype()); }
  Types infer(Inputs) const {
    Types types;
    for (const auto& each : x)
      if (has_cotangent(each)) types.push_back(each.type());
    return types;
  }
  void run(Cpu, Inputs in, Outputs out) const {
    auto all_x = x, all_y = y, all_ybar = ybar;
    std::size_t next = 0, place = 0;
    for (auto* list : {&all_x, &all_y, &all_ybar})
      for (auto& each : *list)
        if (given[place++]) each = in[next++];
    Tensors all_xbar(x.size());
    next = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (has_cotangent(x[i])) all_xbar[i] = out[next++];
    const auto device = in.back().device();
    run_program(*function, "adjoint's result", device, all_xbar, [&](Outputs xbar) {
      for (const auto& each : xbar)
        if (each) detail::zero_bytes(device, each.raw(), each.bytes());
      function->adjoint(Replay(all_x, all_y, wants), all_ybar, xbar);
    });
    next = 0;
    for (const auto& each : all_xbar)
      if (each) out[next++] = each;
  }
  void run(Cuda, Inputs in, Outputs out) const { run(Cpu{}, in, out); }
  void run(Inputs in, Outputs out) const { run(Cpu{}, in, out); }
  Tensors vjp(const Replay&, Inputs) const {
    fail(
        "[{}] its adjoint is hand-written and has no derivative: a second derivative, and jvp(), need external() with a vjp that "
        "is "
        "written in ops",
        function->name);
  }
};

// y = f(x)
struct ExternalOp {
  Function function;

  static constexpr OpTraits traits() { return {.name = "external", .takes_half = true}; }
  Types infer(Inputs in) const {
    if (!function->options.infer) {
      require(!in.empty(), "[{}] without inputs its options need `infer`", function->name);
      return {in[0].type()};
    }
    auto types = function->options.infer(in);
    require(!types.empty(), "[{}] `infer` returns no output", function->name);
    return types;
  }
  LayoutPtr layout(Inputs in) const {
    return function->options.layout ? function->options.layout(in) : detail::refuse_layout(function->name, in);
  }
  void run(Cpu, Inputs in, Outputs out) const {
    run_program(*function, "output", out[0].device(), out, [&](Outputs y) { function->forward(in, y); });
  }
  void run(Cuda, Inputs in, Outputs out) const { run(Cpu{}, in, out); }
  void run(Inputs in, Outputs out) const { run(Cpu{}, in, out); }
  Tensors vjp(const Replay& at, Inputs g) const;
};

// The functions of an op of this file, with the properties that are known at run time only.
template <class Op>
detail::OpFunctions functions_of(const detail::ExternalFunction& f, std::string_view name) {
  auto functions = detail::functions<Op>;
  functions.traits.name = name;
  functions.traits.communicates = f.options.communicates;
  functions.run = functions.run_on_cpu;
  return functions;
}

Tensors ExternalOp::vjp(const Replay& at, Inputs g) const {
  if (function->vjp) return function->vjp(at, g);
  ExternalAdjointOp op{.function = function, .x = {}, .y = {}, .ybar = {}, .given = {}, .wants = {}};
  Tensors operands;
  const auto add = [&](Tensors& list, const Tensor& each) {
    op.given.push_back(each && each.storage());
    if (op.given.back()) operands.push_back(each);
    list.push_back(each.without_storage());
  };
  for (std::size_t i = 0; i < at.inputs(); ++i) add(op.x, at.input(i)), op.wants.push_back(at.wants(i));
  for (std::size_t i = 0; i < g.size(); ++i) add(op.y, at.output(i));
  for (const auto& each : g) add(op.ybar, each);
  auto made = detail::apply_all(&op, functions_of<ExternalAdjointOp>(*function, function->lasting_adjoint_name), operands);
  Tensors result(at.inputs());
  std::size_t next = 0;
  for (std::size_t i = 0; i < result.size(); ++i)
    if (ExternalAdjointOp::has_cotangent(op.x[i])) result[i] = std::move(made[next++]);
  return result;
}

}  // namespace

External make_external(detail::ExternalFunction function) {
  require(!function.name.empty(), "[external] the function has no name");
  require(function.forward != nullptr, "[external] {} has no function", function.name);
  require(function.adjoint || function.vjp, "[external] {} has no adjoint", function.name);
  function.lasting_name = lasting(function.name);
  function.lasting_adjoint_name = lasting(function.name + ", adjoint");
  External result;
  result.function_ = std::make_shared<const detail::ExternalFunction>(std::move(function));
  return result;
}

External external(std::string name, ExternalForward forward, ExternalAdjoint adjoint, ExternalOptions options) {
  return make_external({.name = std::move(name),
                        .forward = std::move(forward),
                        .adjoint = std::move(adjoint),
                        .vjp = {},
                        .options = std::move(options),
                        .lasting_name = {},
                        .lasting_adjoint_name = {}});
}

External external(std::string name, ExternalForward forward, Vjp vjp, ExternalOptions options) {
  return make_external({.name = std::move(name),
                        .forward = std::move(forward),
                        .adjoint = {},
                        .vjp = std::move(vjp),
                        .options = std::move(options),
                        .lasting_name = {},
                        .lasting_adjoint_name = {}});
}

Tensors External::operator()(Tensors x) const {
  require(function_ != nullptr, "[external] this is no function: external() makes one");
  const ExternalOp op{function_};
  auto functions = functions_of<ExternalOp>(*function_, function_->lasting_name);
  functions.traits.keeps_inputs = function_->options.keeps_inputs;
  functions.traits.keeps_outputs = function_->options.keeps_outputs;
  return detail::apply_all(&op, functions, std::move(x));
}

const std::string& External::name() const { return function_->name; }

}  // namespace mpigrad
