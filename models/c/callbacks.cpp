// Functions of the program: C functions as the functions that the library takes.

#include <algorithm>

#include "models/c/functions.h"

namespace mpigrad::capi {
namespace {

// Runs call(), which calls a function of the program; a Refusal if it returns another number than 0.
template <class F>
void call_program(const std::string& name, const char* what, const F& call) {
  const auto before = failures();
  const int code = call();
  if (code == 0) return;
  const bool known = failures() != before;
  refuse(MPIGRAD_CALLBACK_FAILED, "[{}] {} returned {}{}{}", name, what, code, known ? ": " : "", known ? last_reason() : "");
}

// Handles of the running callback; null ones for no tensor.
std::vector<mpigrad_tensor> handles_of(std::span<const Tensor> list) {
  std::vector<mpigrad_tensor> handles;
  for (const auto& x : list) handles.push_back({x ? enter(Kind::tensor, std::make_shared<Tensor>(x)) : 0});
  return handles;
}

// The tensors that a callback has set; an empty one for a null handle if `maybe`.
Tensors results_of(const std::string& name, const char* what, const std::vector<mpigrad_tensor>& handles, bool maybe = false) {
  const Call call(name.c_str());
  Tensors results;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    if (handles[i].value == 0 && !maybe) refuse(MPIGRAD_CALLBACK_FAILED, "[{}] the function did not set {} {}", name, what, i);
    results.push_back(call.maybe(handles[i], fmt::format("that the function set as {} {}", what, i).c_str()));
  }
  return results;
}

void require_outputs(const std::string& name, int outputs) {
  if (outputs < 1) refuse(MPIGRAD_INVALID_ARGUMENT, "[{}] a function has at least one output, not {}", name, outputs);
}

int count_of(std::span<const Tensor> list) { return static_cast<int>(list.size()); }

ExternalForward forward_of(const std::string& name, mpigrad_function forward, void* user) {
  return [=](Inputs x, Outputs y) {
    const CallbackScope scope;
    const auto inputs = handles_of(x);
    auto outputs = handles_of(y);
    call_program(name, "its function", [&] { return forward(user, count_of(x), inputs.data(), count_of(y), outputs.data()); });
    const auto results = results_of(name, "output", outputs);
    std::copy(results.begin(), results.end(), y.begin());
  };
}

ExternalOptions options_of(const std::string& name, int outputs, mpigrad_infer_function infer, void* user, bool communicates) {
  require_outputs(name, outputs);
  if (!infer && outputs > 1)
    refuse(MPIGRAD_INVALID_ARGUMENT, "[{}] an op with {} outputs needs a function that infers their types", name, outputs);
  ExternalOptions options{.communicates = communicates};
  if (infer)
    options.infer = [=](Inputs x) {
      const CallbackScope scope;
      const auto inputs = handles_of(x);
      std::vector<mpigrad_type> types(static_cast<std::size_t>(outputs), mpigrad_type{});
      call_program(name, "its function for types",
                   [&] { return infer(user, count_of(x), inputs.data(), outputs, types.data()); });
      Types result;
      for (const auto& type : types) {
        const auto dtype =
            Call(name.c_str()).one_of<DType>(type.dtype, static_cast<int>(DType::complex128) + 1, "the element type");
        if (type.rank < 0 || type.rank > MPIGRAD_MAX_RANK)
          refuse(MPIGRAD_CALLBACK_FAILED, "[{}] the function for types set the rank {}, not 0 to {}", name, type.rank,
                 static_cast<int>(MPIGRAD_MAX_RANK));
        result.push_back({Shape(std::span(type.shape, static_cast<std::size_t>(type.rank))), dtype});
      }
      return result;
    };
  return options;
}

}  // namespace

TensorFunction function_of(std::string name, mpigrad_function f, void* user, int outputs) {
  require_outputs(name, outputs);
  return [=](const Tensors& x) {
    const CallbackScope scope;
    const auto inputs = handles_of(x);
    std::vector<mpigrad_tensor> results(static_cast<std::size_t>(outputs));
    call_program(name, "the function", [&] { return f(user, count_of(x), inputs.data(), outputs, results.data()); });
    return results_of(name, "output", results);
  };
}

Tensors untaped(mpigrad_function f, void* user, const Tensors& x, int outputs) {
  const Untaped scope;
  return function_of("mpigrad_untaped", f, user, outputs)(x);
}

External make_op(const std::string& name, int outputs, mpigrad_infer_function infer, mpigrad_function forward,
                 mpigrad_adjoint_function adjoint, void* user, bool communicates) {
  const auto run_adjoint = [=](const Replay& at, Inputs ybar, Outputs xbar) {
    const CallbackScope scope;
    Tensors x;
    for (std::size_t i = 0; i < at.inputs(); ++i) x.push_back(at.input(i));
    const auto inputs = handles_of(x), given = handles_of(ybar);
    auto results = handles_of(xbar);
    call_program(name, "its adjoint",
                 [&] { return adjoint(user, count_of(x), inputs.data(), count_of(ybar), given.data(), results.data()); });
    const auto made = results_of(name, "cotangent", results, true);
    std::copy(made.begin(), made.end(), xbar.begin());
  };
  return external(name, forward_of(name, forward, user), ExternalAdjoint(run_adjoint),
                  options_of(name, outputs, infer, user, communicates));
}

External make_differentiable_op(const std::string& name, int outputs, mpigrad_infer_function infer, mpigrad_function forward,
                                mpigrad_adjoint_function vjp, void* user, bool communicates) {
  const auto run_vjp = [=](const Replay& at, Inputs ybar) {
    const CallbackScope scope;
    Tensors x;
    for (std::size_t i = 0; i < at.inputs(); ++i) x.push_back(at.input(i));
    const auto inputs = handles_of(x), given = handles_of(ybar);
    std::vector<mpigrad_tensor> results(x.size());
    call_program(name, "its vjp",
                 [&] { return vjp(user, count_of(x), inputs.data(), count_of(ybar), given.data(), results.data()); });
    return results_of(name, "cotangent", results, true);
  };
  return external(name, forward_of(name, forward, user), Vjp(run_vjp), options_of(name, outputs, infer, user, communicates));
}

double adjoint_check_of(const std::string& name, mpigrad_function f, void* user, const Tensors& x, int outputs,
                        const Communicator& comm, bool second, double tolerance) {
  const auto report = adjoint_check(function_of(name, f, user, outputs), x, comm, {.second = second, .tolerance = tolerance});
  if (!report.passed) refuse(MPIGRAD_CHECK_FAILED, "[adjoint] {} on {} ranks: {}", name, comm.size(), report.message);
  return std::max({report.first, report.exact, report.second});
}

double taylor_test_of(const std::string& name, mpigrad_function f, void* user, const Tensors& x, int outputs,
                      const Communicator& comm, bool second) {
  const auto report = taylor_test(function_of(name, f, user, outputs), x, comm, {.second = second});
  if (!report.passed) refuse(MPIGRAD_CHECK_FAILED, "[taylor] {} on {} ranks: {}", name, comm.size(), report.message);
  double last = 0;
  for (const auto& rate : report.remainders.at(1).rate) last = rate.value_or(last);
  return last;
}

Tensors steps_of(mpigrad_step_function f, void* user, const Tensors& state, std::int64_t steps, std::int64_t snapshots) {
  const auto step = [=](const Tensors& now, std::int64_t number) {
    const CallbackScope scope;
    const auto inputs = handles_of(now);
    std::vector<mpigrad_tensor> next(now.size());
    call_program("time_steps", "the function", [&] { return f(user, number, count_of(now), inputs.data(), next.data()); });
    return results_of("time_steps", "tensor", next);
  };
  return time_steps(step, state, steps, {.snapshots = snapshots});
}

Tensor solve_of(mpigrad_function apply, void* user, const Tensor& b, Solver method, double tolerance, std::int64_t iterations,
                const Communicator& comm) {
  const auto f = function_of("solve", apply, user, 1);
  return solve([f](const Tensor& x) -> Tensor { return f({x}).front(); }, b,
               {.solver = method, .tolerance = tolerance, .iterations = iterations, .communicator = comm});
}

}  // namespace mpigrad::capi
