#include "examples/tools/weights/npz.h"

#include <cstring>

#include "framework/base/joined.h"
#include "framework/base/new_file.h"
#include "framework/base/printable.h"
#include "framework/tensor/tensor_name.h"
#include "models/data/compressed/compressed.h"
#include "models/data/sources/formats.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad::weights {

TensorFile read_npz(const std::filesystem::path& path) {
  std::vector<std::string> others;
  for (const auto& name : data::zip_names(path))
    if (!name.ends_with(".npy") && !name.ends_with('/')) others.push_back(fmt::format("'{}'", printable(name, 80)));
  const auto count = others.size();
  if (count > 12) others.resize(12), others.emplace_back("...");
  require(count == 0, "[npz] {}: {} of its files are not tensors, because their names do not end in .npy: {}", path.string(),
          count, joined(others, ", "));
  TensorFile file;
  std::vector<std::string> names;
  for (auto& [name, array] : data::read_npz(path)) {
    Tensor value = zeros(array.shape, array.type);
    require(static_cast<std::int64_t>(array.values.size()) == value.bytes(), "[npz] {}: '{}' has {} bytes for {}", path.string(),
            name, array.values.size(), value);
    if (value.bytes() > 0) std::memcpy(value.raw(), array.values.data(), array.values.size());
    file.tensors.push_back({name, value}), names.push_back(name);
  }
  require_tensor_names(names, "[npz] " + path.string());
  return file;
}

void write_npz(const std::filesystem::path& path, const TensorFile& file, bool overwrite) {
  require(overwrite || !is_name_taken(path), "[npz] {} exists; --overwrite replaces it", path.string());
  const Untaped scope;
  std::vector<std::string> names;
  for (const auto& tensor : file.tensors) names.push_back(tensor.name);
  require_tensor_names(names, "[npz] " + path.string());
  std::vector<data::ZipEntry> entries;
  for (const auto& [name, stored] : file.tensors) {
    const auto value =
        stored.dtype() == DType::float16 || stored.dtype() == DType::bfloat16 ? cast(stored, DType::float32) : stored;
    const auto header = data::npy_header(value.shape(), value.dtype());
    data::Bytes bytes(header.size() + static_cast<std::size_t>(value.bytes()));
    std::memcpy(bytes.data(), header.data(), header.size());
    if (value.bytes() > 0) std::memcpy(bytes.data() + header.size(), value.raw(), static_cast<std::size_t>(value.bytes()));
    entries.push_back({name + ".npy", std::move(bytes)});
  }
  data::write_zip(path, entries);
  const auto written = data::zip_names(path).size();
  require(written == entries.size(), "[npz] {} has {} of {} tensors", path.string(), written, entries.size());
}

}  // namespace mpigrad::weights
