#include "models/data/sources/npy.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "framework/base/new_file.h"
#include "models/data/sources/formats.h"

namespace mpigrad {

void write_npy(const std::filesystem::path& path, const Tensor& x, bool overwrite) {
  const auto where = "[write_npy] " + path.string();
  require(x && x.device() != DeviceKind::dry && x.storage(), "{}: a tensor without elements: {}", where, x);
  if (x.layout())
    for (const auto axis : x.layout()->varying_axes())
      require(x.layout()->grid->extents[static_cast<std::size_t>(axis)] == 1,
              "{}: this rank holds a block of the tensor; write_hdf5() writes distributed tensors: {}", where, x);
  require(overwrite || !is_name_taken(path), "{}: exists already; it is replaced only when asked to overwrite", where);
  const auto header = data::npy_header(x.shape(), x.dtype());
  const auto here = x.device() == DeviceKind::cpu ? x : detail::copied(x, DeviceKind::cpu);
  NewFile file(path, "write_npy");
  file.write(header);
  file.write(std::span(here.raw(), static_cast<std::size_t>(here.bytes())));
  file.commit();
}

Tensor read_npy(const std::filesystem::path& path) {
  const auto name = path.string();
  const auto stream = data::open_stream(path);
  const auto header = data::parse_npy_header(*stream, name, true);
  const auto array = data::parse_npy_elements(*stream, header, name);
  Tensor x({array.shape, array.type}, DeviceKind::cpu);
  if (x.bytes() > 0) std::memcpy(x.raw(), array.values.data(), static_cast<std::size_t>(x.bytes()));
  if (header.type.kind == 'f' && header.type.size == 2) {  // arrays have float32 instead of float16
    Tensor half({array.shape, DType::float16}, DeviceKind::cpu);
    std::transform(x.data<float>(), x.data<float>() + x.elements(), half.mutable_data<Float16>(),
                   [](float value) { return Float16(value); });
    x = half;
  }
  if (header.complex) {
    const Shape shape(x.shape().span().first(static_cast<std::size_t>(x.rank() - 1)));
    x = Tensor({shape, complex_type(x.dtype())}, x.storage(), x.offset());
  }
  return current_device() == DeviceKind::cpu ? x : detail::copied(x, current_device());
}

}  // namespace mpigrad
