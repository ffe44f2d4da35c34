#include "comm/hdf5/hdf5_tensor.h"

#include <set>

#include "comm/hdf5/hdf5_file.h"
#include "comm/together.h"
#include "framework/base/host_memory.h"
#include "framework/base/printable.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad {
namespace {

// The type in memory of elements that a file stores as `type`: HDF5 itself rounds and widens 16-bit numbers.
DType in_memory(DType type) { return type == DType::boolean ? DType::uint8 : computed_in(type); }

// The elements of x in host memory, in a type that HDF5 takes; not recorded.
Tensor stored(const Tensor& x) {
  const auto plain = detail::copied(x.without_layout(), DeviceKind::cpu).as_constant();
  return is_half(x.dtype()) ? cast(plain, in_memory(x.dtype())) : plain;
}

// True if this rank is the first of the ranks that hold its block.
bool is_writer(const Layout& layout) {
  const auto place = layout.grid->coordinates(layout.grid->rank);
  for (std::size_t axis = 0; axis < place.size(); ++axis)
    if (layout.axes[axis].placement == Placement::replicated && place[axis] != 0) return false;
  return true;
}

Box whole(const Shape& shape) { return {Shape(std::vector<std::int64_t>(static_cast<std::size_t>(shape.rank()), 0)), shape}; }

// Reads a box of a dataset to the current device.
Tensor read_box(const Hdf5Reader& file, const Hdf5Dataset& dataset, const Box& box, std::optional<DType> type) {
  const DType asked = type.value_or(dataset.type);
  const auto where = fmt::format("[read_hdf5] {}: dataset '{}'", file.path().string(), printable(dataset.name));
  require(dataset.kind == Hdf5Dataset::Kind::number, "{} holds {}, not numbers", where, dataset.stored);
  require_host_memory(fmt::format("{}, {} of {}", where, box.extents(), dataset.shape),
                      static_cast<double>(box.elements()) * static_cast<double>(size_of(in_memory(asked))));
  Tensor read({box.extents(), in_memory(asked)}, DeviceKind::cpu);
  file.read(dataset.name, box.begin.span(), box.end.span(), read.dtype(), read.raw());
  const auto x = read.dtype() == asked ? read : cast(read.as_constant(), asked);
  return current_device() == DeviceKind::cpu ? x.as_variable() : detail::copied(x, current_device());
}

}  // namespace

void write_hdf5(const std::filesystem::path& path, const std::string& name, const Tensor& x, bool overwrite) {
  write_hdf5(path, {{name, x}}, overwrite);
}

void write_hdf5(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors, bool overwrite) {
  require(!tensors.empty(), "[write_hdf5] {}: no tensors are given", path.string());
  const auto grid = tensors.front().second.layout() ? tensors.front().second.layout()->grid : nullptr;
  std::set<std::string> names;
  for (const auto& [name, x] : tensors) {
    require(static_cast<bool>(x) && x.device() != DeviceKind::dry, "[write_hdf5] {}: '{}' has no elements: {}", path.string(),
            name, x);
    require(names.insert(name).second, "[write_hdf5] {}: two tensors are called '{}'", path.string(), name);
    const auto& layout = x.layout();
    require((layout ? layout->grid : nullptr) == grid, "[write_hdf5] {}: '{}' and '{}' are not on the same grid", path.string(),
            tensors.front().first, name);
    require(!layout || !layout->has(Placement::partial),
            "[write_hdf5] {}: '{}' holds partial sums; redistribute() them to a layout without partial sums first: {}",
            path.string(), name, x);
  }
  const auto transport = grid ? grid_of(*tensors.front().second.layout()).world().shared_transport() : nullptr;
  Hdf5Writer file(path, overwrite, transport);
  for (const auto& [name, x] : tensors) file.create(name, global_shape(x), x.dtype());
  const auto write = [&] {
    for (const auto& [name, x] : tensors) {
      if (x.layout() && !is_writer(*x.layout())) continue;
      const auto box = x.layout() ? x.layout()->box() : whole(x.shape());
      const auto values = stored(x);
      file.write_box(name, box.begin.span(), box.end.span(), in_memory(x.dtype()), values.raw());
    }
  };
  if (!transport) write();
  else if (const auto failure = detail::first_failure(*transport, write); failure.failed) throw SharedError(failure.text);
  file.commit();
}

namespace {

// Reads, on each rank of the grid, its block in the layout `layout_of(shape of the dataset)`.
template <class F>
Tensor read_block(const std::filesystem::path& path, const std::string& name, const Communicator& world,
                  std::optional<DType> type, F layout_of) {
  Tensor result;
  together(world, [&] {
    const Hdf5Reader file(path);
    const auto dataset = file.describe(name);
    const LayoutPtr layout = layout_of(dataset.shape);
    result = read_box(file, dataset, layout->box(), type).with_layout(layout);
  });
  return result;
}

}  // namespace

Tensor read_hdf5(const std::filesystem::path& path, const std::string& name, const LayoutPtr& layout, std::optional<DType> type) {
  require(layout && !layout->has(Placement::partial), "[read_hdf5] {}: '{}' is read into a layout without partial sums{}",
          path.string(), name, layout ? ", not " + to_string(*layout) : "");
  return read_block(path, name, grid_of(*layout).world(), type, [&](const Shape& shape) {
    require(shape == layout->global, "[read_hdf5] {}: dataset '{}' is {}, the layout is of {}", path.string(), name, shape,
            layout->global);
    return layout;
  });
}

Tensor read_hdf5(const std::filesystem::path& path, const std::string& name, const GridPtr& grid,
                 const std::vector<int>& dimensions, std::optional<DType> type) {
  return read_block(path, name, grid->world(), type, [&](const Shape& shape) { return split_layout(grid, shape, dimensions); });
}

Tensor read_hdf5(const std::filesystem::path& path, const std::string& name, std::optional<DType> type) {
  const Hdf5Reader file(path);
  const auto dataset = file.describe(name);
  return read_box(file, dataset, whole(dataset.shape), type);
}

}  // namespace mpigrad
