// Memory, communicators, halos, optimizers and files.

#include <algorithm>

#include "comm/transport/mpi/integer_comm.h"
#include "models/c/functions.h"

namespace mpigrad::capi {
namespace {

constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }

void require_dtype(const char* function, const Tensor& x, DType type) {
  if (x.dtype() != type)
    refuse(MPIGRAD_INVALID_ARGUMENT, "[{}] the memory has elements of {}, but x is {}", function, mpigrad::name_of(type),
           to_string(x));
}

}  // namespace

// ---- communicators

Communicator comm_of_integer(int communicator) { return Communicator(mpi_transport_of_integer(communicator)); }
Communicator comm_of_cartesian(int communicator, bool reversed) {
  return Communicator(mpi_transport_of_cartesian(communicator, reversed));
}

void require_row_major(const char* op, const Communicator& comm) {
  require(
      cartesian_dimensions(comm.transport()) < 2,
      "[{}] the communicator is one of MPI_Cart_create, and its ranks are numbered by dimensions of MPI's grid, not of a tensor: "
      "mpigrad_comm_from_cartesian() numbers them in the order of the tensor",
      op);
}

Communicator comm_self() {
  // A transport of the threads outlives the threads that it was made for, if there is one rank only.
  std::shared_ptr<Transport> made;
  run_threads(1, [&](const std::shared_ptr<Transport>& transport) { made = transport; });
  return Communicator(made);
}

Tensor wait_for(mpigrad_request handle) {
  const auto request = Call("mpigrad_wait").get(handle, "r");
  auto result = wait(*request);
  erase(handle.value, Kind::request, "mpigrad_wait");
  return result;
}

Topology cartesian_of(const Communicator& comm, const std::vector<int>& extents, const std::vector<int>& periodic) {
  std::vector<bool> flags;
  require_row_major("topology_cartesian", comm);
  for (const int each : periodic) flags.push_back(each != 0);
  return cartesian(comm, extents, flags);
}

// ---- halos

Halo make_halo(const Communicator& comm, const std::vector<int>& ranks, const std::vector<int>& periodic,
               const std::vector<int>& low, const std::vector<int>& high) {
  return {comm, ranks, periodic, low, high};
}

Halo::Halo(const Communicator& comm, const std::vector<int>& ranks, const std::vector<int>& periodic, const std::vector<int>& low,
           const std::vector<int>& high) {
  require_row_major("halo", comm);
  const auto all = cartesian_of(comm, ranks, periodic);
  for (std::size_t d = 0; d < ranks.size(); ++d) {
    require(low[d] >= 0 && high[d] >= 0, "[halo] widths are not negative, got {} and {} in dimension {}", low[d], high[d], d);
    const auto edges = [&](const std::vector<Edge>& list) { return std::vector<Edge>{list[2 * d], list[2 * d + 1]}; };
    lines_.push_back({.neighbours = {comm, edges(all.sources), edges(all.destinations)},
                      .ranks = ranks[d],
                      .periodic = periodic[d],
                      .low = low[d],
                      .high = high[d]});
  }
}

Tensor Halo::exchange(const Tensor& x) const {
  require(x.rank() == static_cast<int>(lines_.size()), "[halo] the exchange is for tensors of {} dimensions, not {}",
          lines_.size(), x);
  Tensor result = x;
  for (int d = 0; d < x.rank(); ++d) {
    const auto& line = lines_[at(d)];
    const auto low = line.low, high = line.high;
    if (low == 0 && high == 0) continue;
    const auto n = x.dim(d);
    require(n >= std::max(low, high), "[halo] this rank has {} elements along dimension {}, fewer than the halo of {}: {}", n, d,
            std::max(low, high), x);
    if (line.ranks == 1 && !line.periodic) {  // nothing arrives
      Shape before(std::vector<std::int64_t>(at(x.rank()), 0)), after = before;
      before[d] = low, after[d] = high;
      result = pad(result, before, after);
      continue;
    }
    result = along_axis(result, d, [&](const Tensor& rows) -> Tensor {
      const Tensor first = slice(rows, 0, 0, high), last = slice(rows, 0, n - low, n);
      if (line.ranks == 1) return concatenate({last, rows, first}, 0);
      const Tensor ghosts = neighbor_alltoall(concatenate({first, last}, 0), line.neighbours, {high, low}, Rows{low, high});
      return concatenate({slice(ghosts, 0, 0, low), rows, slice(ghosts, 0, low, low + high)}, 0);
    });
  }
  return result;
}

// ---- memory

Tensor over(void* memory, DType type, const Shape& shape, mpigrad_release_function release, void* user) {
  if (!release) return Tensor::over(memory, shape, type);
  const auto accepted = std::make_shared<bool>(false);  // memory of a call that fails stays the program's
  auto result = Tensor::over(memory, shape, type, DeviceKind::cpu, std::shared_ptr<const void>(memory, [=](const void*) {
                               if (*accepted) release(user);
                             }));
  *accepted = true;
  return result;
}

void to_strided_memory(const Tensor& x, DType type, const Shape& shape, const std::vector<std::int64_t>& strides, void* memory) {
  require_dtype("mpigrad_tensor_to_strided", x, type);
  if (x.shape() != shape)
    refuse(MPIGRAD_INVALID_ARGUMENT, "[mpigrad_tensor_to_strided] the memory has the shape {}, but x is {}", to_string(shape),
           to_string(x));
  to_strided(x, memory, strides);
}

void to_memory(const Tensor& x, DType type, std::int64_t elements, void* memory) {
  require_dtype("mpigrad_tensor_to_memory", x, type);
  if (x.elements() != elements)
    refuse(MPIGRAD_INVALID_ARGUMENT, "[mpigrad_tensor_to_memory] the memory has {} elements, but x is {}", elements,
           to_string(x));
  const auto strides = x.shape().strides();
  to_strided(x, memory, {strides.begin(), strides.begin() + x.rank()});
}

const void* data_of(const Tensor& x, DType type) {
  require_dtype("mpigrad_tensor_data", x, type);
  return visit_element(type, [&](auto zero) -> const void* { return x.data<decltype(zero)>(); });
}

void* mutable_data_of(Tensor x, DType type) {
  require_dtype("mpigrad_tensor_mutable_data", x, type);
  return visit_element(type, [&](auto zero) -> void* { return x.mutable_data<decltype(zero)>(); });
}

void note_write(const Tensor& x) {
  require(x.storage() != nullptr, "[mpigrad_tensor_note_write] x has no elements in memory: {}", x);
  x.storage()->note_write();
}

Shape shape_of(const Tensor& x, int capacity) {
  if (capacity < x.rank())
    refuse(MPIGRAD_INVALID_ARGUMENT, "[mpigrad_tensor_shape] there are {} dimensions, and places for {}", x.rank(), capacity);
  return x.shape();
}

// ---- the rest

Tensor conv(const Tensor& x, const Tensor& w, const std::int64_t* stride, const std::int64_t* padding,
            const std::int64_t* dilation, PaddingMode mode, std::int64_t groups) {
  const auto three = [](const std::int64_t* v, std::int64_t otherwise) {
    return v ? Triple(v[0], v[1], v[2]) : Triple(otherwise);
  };
  return mpigrad::conv(
      x, w, {.stride = three(stride, 1), .dilation = three(dilation, 1), .padding = {three(padding, 0), mode}, .groups = groups});
}

NamedOptimizer::NamedOptimizer(const std::string& name, const Tensors& x, const OptimizerOptions& options)
    : parameters_(std::make_shared<Parameters>()) {
  require(!x.empty(), "[optimizer] there are no parameters");
  for (std::size_t i = 0; i < x.size(); ++i) parameters_->add(fmt::format("parameter {}", i), x[i], true);
  parameters_->pack();
  optimizer = make_optimizer(name, *parameters_, options);
}

NamedOptimizer::NamedOptimizer(const std::string& name, const std::shared_ptr<Network>& net, const OptimizerOptions& options)
    : parameters_(net, &net->parameters()), optimizer(make_optimizer(name, *parameters_, options)) {}

Tensor NamedOptimizer::parameter(int index) const {
  if (index < 0 || at(index) >= parameters_->size())
    refuse(MPIGRAD_INVALID_ARGUMENT, "[optimizer] there are parameters 0 to {}, not {}", parameters_->size() - 1, index);
  return (*parameters_)[at(index)].value;
}

void NamedOptimizer::step(const Tensors& gradients, double max_norm) {
  require(gradients.size() == parameters_->size(), "[optimizer] there are {} parameters, but {} gradients", parameters_->size(),
          gradients.size());
  for (std::size_t i = 0; i < gradients.size(); ++i)
    require(gradients[i].type() == (*parameters_)[i].value.type(), "[optimizer] gradient {} is {}, but its parameter is {}", i,
            gradients[i], (*parameters_)[i].value);
  optimizer->step(Gradients(gradients), {.max_norm = max_norm});
}

NamedOptimizer make_named_optimizer(const std::string& name, const Tensors& x, double learning_rate, double momentum,
                                    double weight_decay) {
  return {name, x, {.learning_rate = learning_rate, .momentum = momentum, .weight_decay = weight_decay}};
}

NamedOptimizer make_network_optimizer(const std::string& name, mpigrad_network net, double learning_rate, double momentum,
                                      double weight_decay) {
  return {name,
          Call("mpigrad_network_optimizer").get(net, "net"),
          {.learning_rate = learning_rate, .momentum = momentum, .weight_decay = weight_decay}};
}

void step_of_tape(Tape& tape, const Tensor& objective, NamedOptimizer& optimizer, double max_norm) {
  const TensorList parameters(optimizer.parameters().tensors());
  optimizer.optimizer->step(Gradients(tape.gradient(objective, parameters)), {.max_norm = max_norm});
}

void write_named(const std::string& path, const std::vector<std::string>& names, const Tensors& x) {
  CheckpointTensors contents;
  for (std::size_t i = 0; i < x.size(); ++i) contents.tensors.push_back({"parameters/" + names[i], x[i]});
  write_weights(path, contents, false, true);
}

Tensor read_named(const std::string& path, const std::string& name) {
  for (const auto& each : read_weights(path).tensors)
    if (each.name == "parameters/" + name || each.name == "buffers/" + name) return each.value;
  fail("[weights] {} has no tensor {}", path, name);
}

}  // namespace mpigrad::capi
