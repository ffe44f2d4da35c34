#pragma once
// Handles of the C interface: numbers that stand for objects of the library. A handle has its kind, the place of its object in a
// table of the process, and the generation of that place, so that the handle of a destroyed object is recognised. Used in this
// folder only.

#include <mpigrad/c.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/collectives/neighbor.h"
#include "comm/distributed/grid.h"
#include "comm/messages/request.h"
#include "framework/optim/optimizer.h"
#include "ops/external.h"

namespace mpigrad::capi {

enum class Kind : std::uint8_t { none, comm, tensor, tape, request, op, topology, halo, optimizer, scope, grid, network };
std::string_view name_of(Kind kind);  // "tensor"

// An Error with the status that its call returns.
class Refusal : public Error {
 public:
  Refusal(mpigrad_status reason, const std::string& text) : Error(text), status(reason) {}
  mpigrad_status status;
};
template <class... Arguments>
[[noreturn]] void refuse(mpigrad_status status, fmt::format_string<Arguments...> format, const Arguments&... arguments) {
  throw Refusal(status, fmt::vformat(format, fmt::make_format_args(arguments...)));
}

// An exchange of ghost elements. Along each dimension with a halo, one after the other, each rank sends rows to the ranks below
// and above, the ghost rows of earlier dimensions included, so that corners arrive, too.
class Halo {
 public:
  // One number for each dimension; `ranks` is the grid. Error: their product is not the size of `comm`; a negative width.
  Halo(const Communicator& comm, const std::vector<int>& ranks, const std::vector<int>& periodic, const std::vector<int>& low,
       const std::vector<int>& high);
  // x with its halo. Errors: another number of dimensions; fewer rows than a neighbour needs.
  Tensor exchange(const Tensor& x) const;

 private:
  struct Line {
    Topology neighbours;  // one below, one above
    int ranks = 1, periodic = 0;
    std::int64_t low = 0, high = 0;
  };
  std::vector<Line> lines_;
};

class Network;

// An optimizer and its parameters, which it refers to: its own, or those of a network.
class NamedOptimizer {
 public:
  NamedOptimizer(const std::string& name, const Tensors& x, const OptimizerOptions& options);
  NamedOptimizer(const std::string& name, const std::shared_ptr<Network>& net, const OptimizerOptions& options);
  Parameters& parameters() const { return *parameters_; }
  Tensor parameter(int index) const;
  // Error: not one gradient for each parameter, of its type.
  void step(const Tensors& gradients, double max_norm);

 private:
  std::shared_ptr<Parameters> parameters_;

 public:
  std::unique_ptr<Optimizer> optimizer;
};

struct Scope {
  std::uint64_t number = 0;
};

// The kind and the object of each type of handle.
template <class Handle>
struct Traits;
template <class Class, Kind of>
struct TraitsOf {
  using Object = Class;
  static constexpr Kind kind = of;
};
template <>
struct Traits<mpigrad_comm> : TraitsOf<Communicator, Kind::comm> {};
template <>
struct Traits<mpigrad_tensor> : TraitsOf<Tensor, Kind::tensor> {};
template <>
struct Traits<mpigrad_tape> : TraitsOf<Tape, Kind::tape> {};
template <>
struct Traits<mpigrad_request> : TraitsOf<Request, Kind::request> {};
template <>
struct Traits<mpigrad_op> : TraitsOf<External, Kind::op> {};
template <>
struct Traits<mpigrad_topology> : TraitsOf<Topology, Kind::topology> {};
template <>
struct Traits<mpigrad_halo> : TraitsOf<Halo, Kind::halo> {};
template <>
struct Traits<mpigrad_optimizer> : TraitsOf<NamedOptimizer, Kind::optimizer> {};
template <>
struct Traits<mpigrad_scope> : TraitsOf<Scope, Kind::scope> {};
template <>
struct Traits<mpigrad_grid> : TraitsOf<GridPtr, Kind::grid> {};
template <>
struct Traits<mpigrad_network> : TraitsOf<Network, Kind::network> {};

// A handle of `object` for this thread, in its innermost scope.
std::uint64_t enter(Kind kind, std::shared_ptr<void> object);
// The object of a handle of this thread. Refusals, which name the function and the argument: a null, destroyed or unknown handle,
// one of another kind or thread.
std::shared_ptr<void> find(std::uint64_t handle, Kind kind, const char* function, const char* argument);
// Destroys the handle of an object. A null handle is left as it is.
void erase(std::uint64_t handle, Kind kind, const char* function);

// Handles that this thread makes in `*this` scope are destroyed with it.
class CallbackScope {
 public:
  CallbackScope();
  ~CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;

 private:
  std::size_t depth_;
};

// The functions of table.txt with these names.
std::shared_ptr<Scope> begin_scope();
void end_scope(mpigrad_scope scope, const std::vector<std::uint64_t>& kept);
void destroy_all();
std::int64_t live_handles();

}  // namespace mpigrad::capi
