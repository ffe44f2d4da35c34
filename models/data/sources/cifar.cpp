#include "models/data/sources/formats.h"

namespace mpigrad::data {
namespace {
constexpr std::size_t plane = 32 * 32, pixels = 3 * plane;
}

CifarFiles read_cifar(const std::vector<std::filesystem::path>& paths) {
  CifarFiles result;
  auto& [samples, labels] = result;
  require(!paths.empty(), "[cifar] no files");
  samples = {paths.front(), 0, 3, {1, 32, 32}, DType::uint8, {}};
  for (const auto& path : paths) {
    const auto bytes = read_bytes(path);
    const auto name = path.string();
    const bool ten = bytes.size() % (pixels + 1) == 0, hundred = bytes.size() % (pixels + 2) == 0;
    require(!bytes.empty() && ten != hundred,
            "[cifar] {}: {} bytes are not a whole number of records of 3073 (CIFAR-10) or 3074 bytes (CIFAR-100)", name,
            bytes.size());
    const std::size_t own = ten ? 1 : 2;
    if (labels.empty()) labels = ten ? std::vector<Labels>{{"label", {}}} : std::vector<Labels>{{"coarse", {}}, {"fine", {}}};
    require(labels.size() == own, "[cifar] {} and {} are not both CIFAR-10 or CIFAR-100", paths.front().string(), name);
    const auto count = bytes.size() / (own + pixels);
    for (std::size_t i = 0; i < count; ++i) {
      const auto* record = bytes.data() + i * (own + pixels);
      for (std::size_t k = 0; k < own; ++k) labels[k].values.push_back(static_cast<std::int64_t>(record[k]));
      for (std::size_t p = 0; p < plane; ++p)
        for (std::size_t c = 0; c < 3; ++c) samples.values.push_back(record[own + c * plane + p]);
    }
    samples.count += static_cast<std::int64_t>(count);
  }
  return result;
}

}  // namespace mpigrad::data
