#pragma once
// Networks of the installed trainers, made from their files of weights, on a grid of ranks. Used in this folder only.

#include <cstdint>
#include <memory>
#include <string>

#include "models/c/handles.h"
#include "models/networks/described/described.h"

namespace mpigrad::capi {

// x, this rank's block, as a tensor over all ranks of the grid: axis a of the grid cuts dimension dimensions[a]; -1, and axes
// left out, do not cut. The blocks of the ranks say where it is cut. Collective. Errors, on all ranks: blocks that do not fit
// together.
Tensor distribute(const Tensor& x, const GridPtr& grid, const std::vector<int>& dimensions);
// This rank's block of a tensor over several ranks, as a plain tensor; where several ranks have the same block, their cotangents
// are added. Other tensors stay as they are.
Tensor local_block(const Tensor& x);

// The step of a checkpoint. Error: it is no int.
int step_of(const std::string& path, const CheckpointInfo& info);

class Network {
 public:
  // Collective. Errors: those of describe_network() and load_checkpoint(); ranks that read different files.
  Network(const std::string& path, const Communicator& comm, const GridExtents& grid);

  // The network's function, for an input over the ranks or this rank's block of it; the result is over the ranks.
  Tensor apply(const Tensor& x, bool training);
  // The results in the units of the data, in evaluation mode, outside of all tapes: this rank's block.
  Tensor predict(const Tensor& x);
  // A step; returns the loss of all ranks before it.
  double train_step(NamedOptimizer& optimizer, const std::string& loss, const Tensor& x, const Tensor& target, double max_norm);

  Shape input_shape(int capacity) const;  // [1, D, H, W, C]
  const Parameter& parameter(int index) const;
  Parameters& parameters() const { return net_->parameters(); }
  const GridPtr& grid() const { return grid_; }

  // With an optimizer a checkpoint, else weights, which the trainers read, too. Collective.
  void write(const std::string& path, const NamedOptimizer* optimizer, int step) const;
  // Returns the step. Error: a file of another network.
  int read(const std::string& path, const NamedOptimizer* optimizer);

 private:
  Tensor input(const Tensor& x) const;
  Tensor over_ranks(const Tensor& x) const;
  Communicator comm_;
  GridPtr grid_;
  NetworkDescription description_;
  std::map<std::string, std::string> notes_;
  std::unique_ptr<nn::Module> net_;
};

// Error: a communicator of MPI_Cart_create with several dimensions, whose numbers of ranks are those of MPI's grid.
void require_row_major(const char* op, const Communicator& comm);
GridPtr make_grid_of(const Communicator& comm, const std::vector<int>& ranks);
std::shared_ptr<Network> make_named_network(const std::string& path, const Communicator& comm, int sample, int depth, int height,
                                            int width);

}  // namespace mpigrad::capi
