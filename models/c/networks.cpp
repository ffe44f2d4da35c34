#include "models/c/networks.h"

#include <mpigrad/mpigrad.h>

#include <cmath>
#include <limits>

#include "comm/distributed/redistribute.h"
#include "comm/hdf5/hdf5_file.h"
#include "comm/together.h"
#include "comm/transport/mpi/integer_comm.h"
#include "framework/base/joined.h"

namespace mpigrad::capi {
namespace {

constexpr std::size_t as_index(int i) { return static_cast<std::size_t>(i); }

const std::map<std::string, LossFunction>& losses() {
  static const std::map<std::string, LossFunction> all{{"mse", mse},
                                                       {"mae", mae},
                                                       {"huber", huber},
                                                       {"cross_entropy", cross_entropy},
                                                       {"binary_cross_entropy_with_logits", binary_cross_entropy_with_logits},
                                                       {"soft_dice", segmentation::soft_dice_loss},
                                                       {"dice_cross_entropy", segmentation::dice_cross_entropy_loss}};
  return all;
}

const LossFunction& loss_called(const std::string& name) {
  const auto found = losses().find(name);
  if (found != losses().end()) return found->second;
  std::vector<std::string> names;
  for (const auto& each : losses()) names.push_back(each.first);
  refuse(MPIGRAD_INVALID_ARGUMENT, "[network] the losses are {}, not '{}'", joined(names, ", "), name);
}

Tensor row_of(const std::vector<double>& values, DType type) {
  return constant(from_vector({static_cast<std::int64_t>(values.size())}, values, type));
}

}  // namespace

// ---- blocks

Tensor distribute(const Tensor& x, const GridPtr& grid, const std::vector<int>& dimensions) {
  require(!x.layout(), "[distribute] x is over the ranks of a grid already: {}", x);
  const auto axes = grid->extents.size();
  require(dimensions.size() <= axes, "[distribute] the grid has {} axes, not {}", axes, dimensions.size());
  // The type and the extents of the blocks of all ranks.
  constexpr int numbers = 10;
  const auto ranks = as_index(grid->ranks());
  std::vector<std::int64_t> mine{static_cast<std::int64_t>(x.dtype()), x.rank()}, all(numbers * ranks);
  mine.insert(mine.end(), x.shape().begin(), x.shape().end());
  mine.resize(numbers);
  grid->world().transport().allgather(mine.data(), all.data(), std::vector<std::int64_t>(ranks, numbers), DType::int64);
  const auto extent = [&](std::size_t rank, int d) { return all[numbers * rank + 2 + as_index(d)]; };
  for (std::size_t r = 1; r < ranks; ++r)
    require(all[numbers * r] == all[0] && all[numbers * r + 1] == all[1],
            "[distribute] the blocks have one type and one number of dimensions: rank 0 has {} with {}, rank {} {} with {}",
            name_of(static_cast<DType>(all[0])), all[1], r, name_of(static_cast<DType>(all[numbers * r])), all[numbers * r + 1]);
  Layout layout{.grid = grid, .global = x.shape(), .axes = std::vector<AxisPlacement>(axes)};
  std::vector<int> cut(as_index(x.rank()), -1);  // the axis that cuts each dimension
  for (std::size_t a = 0; a < dimensions.size(); ++a) {
    const int d = dimensions[a];
    if (d == -1) continue;
    require(d >= 0 && d < x.rank(), "[distribute] axis {} cuts one of the dimensions 0 to {}, or none (-1), not {}", a,
            x.rank() - 1, d);
    require(cut[as_index(d)] < 0, "[distribute] the axes {} and {} both cut dimension {}", cut[as_index(d)], a, d);
    cut[as_index(d)] = static_cast<int>(a);
  }
  for (int d = 0; d < x.rank(); ++d) {
    const int a = cut[as_index(d)];
    std::vector<std::int64_t> extents(a < 0 ? 1 : as_index(grid->extents[as_index(a)]), -1);
    for (std::size_t r = 0; r < ranks; ++r) {
      auto& expected = extents[a < 0 ? 0 : as_index(grid->coordinates(static_cast<int>(r))[as_index(a)])];
      if (expected < 0) expected = extent(r, d);
      require(expected == extent(r, d),
              "[distribute] the blocks do not fit together: rank {} has {} elements along dimension {}, {}", r, extent(r, d), d,
              a < 0 ? fmt::format("which is not cut, rank 0 has {}", expected)
                    : fmt::format("a rank at the same place of axis {} has {}", a, expected));
    }
    if (a < 0) continue;
    std::vector<std::int64_t> cuts{0};
    for (const auto each : extents) cuts.push_back(cuts.back() + each);
    layout.global[d] = cuts.back();
    layout.axes[as_index(a)] = {Placement::split, d, std::move(cuts)};
  }
  return x.with_layout(std::make_shared<const Layout>(std::move(layout)));
}

Tensor local_block(const Tensor& x) {
  if (!x.layout()) return x;
  const auto y = detail::whole(x);
  const auto& layout = *y.layout();
  std::vector<int> same;
  for (std::size_t a = 0; a < layout.axes.size(); ++a)
    if (layout.axes[a].placement == Placement::replicated && layout.grid->extents[a] > 1) same.push_back(static_cast<int>(a));
  return detail::replicated(y, same, y.dtype()).without_layout();
}

GridPtr make_grid_of(const Communicator& comm, const std::vector<int>& ranks) {
  require_row_major("grid", comm);
  std::vector<std::string> names;
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    require(ranks[a] > 0, "[grid] there is at least one rank along each axis, got {} along axis {}", ranks[a], a);
    names.push_back(fmt::format("axis {}", a));
  }
  return std::make_shared<Grid>(comm, names, ranks);
}

// ---- networks

std::shared_ptr<Network> make_named_network(const std::string& path, const Communicator& comm, int sample, int depth, int height,
                                            int width) {
  require_row_major("network", comm);
  return std::make_shared<Network>(path, comm, GridExtents{.sample = sample, .depth = depth, .height = height, .width = width});
}

Network::Network(const std::string& path, const Communicator& comm, const GridExtents& extents)
    : comm_(comm), grid_(make_grid(comm, extents)) {
  auto dtype = DType::float32;
  std::string text;
  together(comm, [&] {
    const auto info = read_checkpoint_info(path);
    description_ = describe_network(path, info), notes_ = info.notes;
    for (const auto& dataset : Hdf5Reader(path).datasets())
      if (dataset.name.starts_with("parameters/") && dataset.type == DType::float64) dtype = DType::float64;
    net_ = make_network(description_);
    for (const auto& [name, note] : notes_) text += fmt::format("{}={}\n", name, note);
  });
  const auto first = text_of_rank(comm.transport(), text);
  together(comm, [&] { require(text == first, "[network] the ranks read different files {}", path); });
  const auto& e = description_.extents;
  net_->build(input_layout(grid_, {extents.sample, e[0], e[1], e[2], description_.channels}), {.dtype = dtype});
  together(comm, [&] { load_checkpoint(path, *net_, {.averaged = true}); });
  notes_.erase("averaged weights");  // steps change them
  require_same_parameters(fmt::format("[network] the ranks read different files {}", path), net_->parameters(), comm.transport());
}

Tensor Network::over_ranks(const Tensor& x) const {
  if (x.layout()) return x;
  // Volumes are cut along the axes of samples and of space, rows of numbers and labels of samples along that of samples.
  const std::vector<int> volumes{0, 1, 2, 3}, rows{0};
  require(x.rank() >= 1, "[network] a tensor of samples has the dimension of the samples first: {}", x);
  return distribute(x, grid_, x.rank() >= 4 ? volumes : rows);
}

Tensor Network::input(const Tensor& x) const {
  require(x.rank() == 5 && is_floating(x.dtype()), "[network] the input is [N, D, H, W, C] of floating-point numbers: {}", x);
  require(x.dim(4) == description_.channels, "[network] {} of these weights takes {} channels: {}", description_.name,
          description_.channels, x);
  return cast(over_ranks(x), net_->dtype());
}

Tensor Network::apply(const Tensor& x, bool training) {
  net_->train(training);
  return cast((*net_)(input(x)), net_->dtype());
}

Tensor Network::predict(const Tensor& x) {
  const Untaped untaped;
  const nn::EvaluationMode mode(*net_);
  const auto y = local_block(cast((*net_)(input(x)), net_->dtype()));
  if (description_.means.empty()) return y;
  return add(multiply(y, row_of(description_.deviations, y.dtype())), row_of(description_.means, y.dtype()));
}

double Network::train_step(NamedOptimizer& optimizer, const std::string& name, const Tensor& x, const Tensor& target,
                           double max_norm) {
  if (&optimizer.parameters() != &net_->parameters())
    refuse(MPIGRAD_INVALID_ARGUMENT,
           "[network] the optimizer is of other parameters: network_optimizer() makes one of this network");
  const auto& loss = loss_called(name);
  const auto in = constant(input(x));
  auto known = target.without_layout();
  if (is_floating(target.dtype())) {
    known = cast(known, net_->dtype());
    if (!description_.means.empty())
      known = divide(subtract(known, row_of(description_.means, known.dtype())), row_of(description_.deviations, known.dtype()));
  }
  const auto expected = constant(target.layout() ? known.with_layout(target.layout()) : over_ranks(known));
  net_->train();
  Tape tape(*net_);
  const auto share = loss(cast((*net_)(in), net_->dtype()), expected);
  const double value = total(detail::local_item(share), share.layout(), comm_);
  require(std::isfinite(value), "[network] the loss is {}: the step is not made; a smaller learning rate may help", value);
  optimizer.optimizer->step(tape.gradient(share), {.max_norm = max_norm});
  return value;
}

Shape Network::input_shape(int capacity) const {
  if (capacity < 5) refuse(MPIGRAD_INVALID_ARGUMENT, "[network] there are 5 dimensions, and places for {}", capacity);
  const auto& e = description_.extents;
  return {1, e[0], e[1], e[2], description_.channels};
}

const Parameter& Network::parameter(int index) const {
  const auto& list = net_->parameters();
  if (index < 0 || as_index(index) >= list.size())
    refuse(MPIGRAD_INVALID_ARGUMENT, "[network] there are parameters 0 to {}, not {}", list.size() - 1, index);
  return list[as_index(index)];
}

int step_of(const std::string& path, const CheckpointInfo& info) {
  require(info.step >= 0 && info.step <= std::numeric_limits<int>::max(), "[checkpoint] {} has the step {}, which is no int",
          path, info.step);
  return static_cast<int>(info.step);
}

void Network::write(const std::string& path, const NamedOptimizer* optimizer, int step) const {
  save_checkpoint(path, *net_, comm_,
                  {.optimizer = optimizer ? optimizer->optimizer.get() : nullptr, .info = {.step = step, .notes = notes_}});
}

int Network::read(const std::string& path, const NamedOptimizer* optimizer) {
  CheckpointInfo info;
  together(comm_, [&] { info = load_checkpoint(path, *net_, {.optimizer = optimizer ? optimizer->optimizer.get() : nullptr}); });
  return step_of(path, info);
}

}  // namespace mpigrad::capi
