#include "examples/trainers/contrastive/npy.h"

#include <span>

#include "framework/base/new_file.h"
#include "models/data/sources/formats.h"

namespace mpigrad::contrast {

void write_npy(const std::filesystem::path& path, const Tensor& x) {
  NewFile file(path, "npy");
  file.write(data::npy_header(x.shape(), x.dtype()));
  file.write(std::span(x.raw(), static_cast<std::size_t>(x.bytes())));
  file.commit();
}

}  // namespace mpigrad::contrast
