#pragma once
// Functions of the C interface that are more than a call of the library: the rows of table.txt name them. Used in this folder
// only.

#include <mpigrad/mpigrad.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/c/handles.h"
#include "models/c/networks.h"

namespace mpigrad::capi {

// Reads the arguments and writes the results of one call. Refusals name the function and the argument.
class Call {
 public:
  explicit Call(const char* function) : function_(function) {}

  template <class Handle>
  std::shared_ptr<typename Traits<Handle>::Object> get(Handle handle, const char* argument) const {
    return std::static_pointer_cast<typename Traits<Handle>::Object>(
        find(handle.value, Traits<Handle>::kind, function_, argument));
  }
  Tensor tensor(mpigrad_tensor x, const char* argument) const { return *get(x, argument); }
  // No tensor, or no communicator, for a null handle.
  Tensor maybe(mpigrad_tensor x, const char* argument) const { return x.value == 0 ? Tensor() : *get(x, argument); }
  Communicator comm_or_none(mpigrad_comm c, const char* argument) const {
    return c.value == 0 ? Communicator() : *get(c, argument);
  }
  // A null pointer for a null handle.
  template <class Handle>
  typename Traits<Handle>::Object* object_or_none(Handle handle, const char* argument) const {
    return handle.value == 0 ? nullptr : get(handle, argument).get();
  }
  Tensors tensors(int count, const mpigrad_tensor* list, const char* argument) const;
  std::vector<std::uint64_t> raw(int count, const mpigrad_tensor* list, const char* argument) const;
  std::vector<std::string> strings(int count, const char* const* list, const char* argument) const;
  std::string text(const char* text, const char* argument) const { return there(text, argument); }
  // The elements of a list; one of length 0 may be a null pointer.
  template <class T>
  std::vector<T> list(int count, const T* values, const char* argument) const {
    require_list(count, values, argument);
    return count == 0 ? std::vector<T>() : std::vector<T>(values, values + count);
  }
  Shape shape(int count, const std::int64_t* extents, const char* argument) const {
    return Shape(list(count, extents, argument));
  }
  // A pointer that must not be null.
  template <class Pointer>
  Pointer there(Pointer pointer, const char* argument) const {
    if (!pointer) refuse_null(argument);
    return pointer;
  }
  // A constant of an enumeration of `count` values.
  template <class Enum>
  Enum one_of(int value, int count, const char* argument) const {
    if (value < 0 || value >= count) refuse_constant(value, count, argument);
    return static_cast<Enum>(value);
  }

  // Throws if there is no place for a result, before anything is computed.
  void place(const void* result, const char* argument) const { there(result, argument); }
  void place(const void* result, const char* argument, int count) const { require_list(count, result, argument); }
  template <class Handle>
  void give(Handle* result, std::shared_ptr<typename Traits<Handle>::Object> object) const {
    result->value = enter(Traits<Handle>::kind, std::move(object));
  }
  template <class Handle>
  void give(Handle* result, typename Traits<Handle>::Object object) const {
    give(result, std::make_shared<typename Traits<Handle>::Object>(std::move(object)));
  }
  // A null handle for no tensor.
  void give(mpigrad_tensor* result, const Tensor& x) const;
  void give(mpigrad_tensor* results, int count, const Tensors& x) const;
  void give(std::int64_t* results, int count, const Shape& shape) const;
  void give(int* result, int value) const { *result = value; }
  void give(mpigrad_dtype* result, DType value) const { *result = static_cast<int>(value); }
  void give(std::int64_t* result, std::int64_t value) const { *result = value; }
  void give(double* result, double value) const { *result = value; }
  void give(void** result, void* value) const { *result = value; }
  void give(const void** result, const void* value) const { *result = value; }
  void give(const char** result, const char* value) const { *result = value; }

 private:
  void require_list(int count, const void* list, const char* argument) const;
  [[noreturn]] void refuse_null(const char* argument) const;
  [[noreturn]] void refuse_constant(int value, int count, const char* argument) const;
  const char* function_;
};

// Keeps the reason of the exception that is being handled, and returns its status.
mpigrad_status status_of_exception(const char* function) noexcept;
// Runs body(call) for a function of the interface: no exception leaves it.
template <class Body>
mpigrad_status run(const char* function, const Body& body) noexcept {
  try {
    body(Call(function));
    return MPIGRAD_OK;
  } catch (...) {
    return status_of_exception(function);
  }
}
// The number of calls of this thread that have failed, and the reason of the last of them.
std::uint64_t failures();
const std::string& last_reason();

// ---- communicators

Communicator comm_of_integer(int communicator);
Communicator comm_of_cartesian(int communicator, bool reversed);
Communicator comm_self();
template <class Handle>
void destroy(Handle handle, const char* function) {
  erase(handle.value, Traits<Handle>::kind, function);
}
Tensor wait_for(mpigrad_request handle);
Topology cartesian_of(const Communicator& comm, const std::vector<int>& extents, const std::vector<int>& periodic);
Halo make_halo(const Communicator& comm, const std::vector<int>& ranks, const std::vector<int>& periodic,
               const std::vector<int>& low, const std::vector<int>& high);

// ---- memory

Tensor over(void* memory, DType type, const Shape& shape, mpigrad_release_function release, void* user);
// Write x to memory. Refusals: elements of another type, another shape, another number of elements.
void to_strided_memory(const Tensor& x, DType type, const Shape& shape, const std::vector<std::int64_t>& strides, void* memory);
void to_memory(const Tensor& x, DType type, std::int64_t elements, void* memory);
const void* data_of(const Tensor& x, DType type);
void* mutable_data_of(Tensor x, DType type);
void note_write(const Tensor& x);
// A Refusal: `capacity` is too small.
Shape shape_of(const Tensor& x, int capacity);

// ---- functions of the program

// y = f(x), with f called as C code
TensorFunction function_of(std::string name, mpigrad_function f, void* user, int outputs);
Tensors untaped(mpigrad_function f, void* user, const Tensors& x, int outputs);
External make_op(const std::string& name, int outputs, mpigrad_infer_function infer, mpigrad_function forward,
                 mpigrad_adjoint_function adjoint, void* user, bool communicates);
External make_differentiable_op(const std::string& name, int outputs, mpigrad_infer_function infer, mpigrad_function forward,
                                mpigrad_adjoint_function vjp, void* user, bool communicates);
double adjoint_check_of(const std::string& name, mpigrad_function f, void* user, const Tensors& x, int outputs,
                        const Communicator& comm, bool second, double tolerance);
double taylor_test_of(const std::string& name, mpigrad_function f, void* user, const Tensors& x, int outputs,
                      const Communicator& comm, bool second);
Tensors steps_of(mpigrad_step_function f, void* user, const Tensors& state, std::int64_t steps, std::int64_t snapshots);
Tensor solve_of(mpigrad_function apply, void* user, const Tensor& b, Solver method, double tolerance, std::int64_t iterations,
                const Communicator& comm);

// ---- the rest

// Null pointers: stride 1, padding 0, dilation 1.
Tensor conv(const Tensor& x, const Tensor& w, const std::int64_t* stride, const std::int64_t* padding,
            const std::int64_t* dilation, PaddingMode mode, std::int64_t groups);
NamedOptimizer make_named_optimizer(const std::string& name, const Tensors& x, double learning_rate, double momentum,
                                    double weight_decay);
NamedOptimizer make_network_optimizer(const std::string& name, mpigrad_network net, double learning_rate, double momentum,
                                      double weight_decay);
// A step with the gradients of the objective with respect to the optimizer's parameters.
void step_of_tape(Tape& tape, const Tensor& objective, NamedOptimizer& optimizer, double max_norm);
// Checkpoints of tensors by name, and of an optimizer with its parameters if there is one.
void write_checkpoint(const std::string& path, const Communicator& comm, const std::vector<std::string>& names, const Tensors& x,
                      const NamedOptimizer* optimizer, int step);
int read_checkpoint(const std::string& path, const std::vector<std::string>& names, const Tensors& x,
                    const NamedOptimizer* optimizer);
void write_named(const std::string& path, const std::vector<std::string>& names, const Tensors& x);
Tensor read_named(const std::string& path, const std::string& name);

}  // namespace mpigrad::capi
