#include "examples/trainers/contact_maps/maps.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include "comm/hdf5/hdf5_file.h"
#include "comm/hdf5/hdf5_tensor.h"
#include "models/data/sources/memory.h"
#include "models/data/sources/npy.h"

namespace mpigrad::contacts {
namespace {

bool is_npy(const std::filesystem::path& path) { return path.extension() == ".npy" || path.extension() == ".gz"; }

std::optional<Tensor> read(const std::filesystem::path& path, const std::string& name, bool needed) {
  if (name.empty()) return std::nullopt;
  if (is_npy(name)) return read_npy(name);
  if (is_npy(path)) {
    require(!needed, "[contact_maps] {} is one array; {} must be a .npy file, too", path.string(), name);
    return std::nullopt;
  }
  if (!needed && !Hdf5Reader(path).contains(name)) return std::nullopt;
  return read_hdf5(path, name);
}

// One number for each map.
std::vector<double> read_numbers(const std::filesystem::path& path, const std::string& name, bool needed, std::int64_t count) {
  const auto x = read(path, name, needed);
  if (!x) return {};
  require(x->elements() == count, "[contact_maps] {}: {} has shape {} for {} maps", path.string(), name, x->shape(), count);
  auto values = x->to_vector();
  require(std::ranges::all_of(values, [](double v) { return std::isfinite(v); }), "[contact_maps] {}: {} is not finite",
          path.string(), name);
  return values;
}

}  // namespace

ContactMaps read_maps(const std::filesystem::path& path, const MapNames& names, bool asked) {
  require(std::filesystem::exists(path), "[data] {}: no such file or folder", path.string());
  const auto stored = is_npy(path) ? read_npy(path) : read_hdf5(path, names.maps);
  std::vector<std::int64_t> extents;
  for (int d = 1; d < stored.rank(); ++d)
    if (stored.dim(d) != 1) extents.push_back(stored.dim(d));
  if (extents.size() == 1) {
    const auto root = std::llround(std::sqrt(static_cast<double>(extents[0])));
    if (root * root == extents[0]) extents = {root, root};
  }
  require(stored.rank() >= 2 && stored.dim(0) > 1 && extents.size() == 2 && extents[0] == extents[1],
          "[contact_maps] {}: maps are [n, R, R] or [n, R R], not {}", path.string(), stored.shape());
  ContactMaps result{.residues = extents[0], .side = extents[0] + extents[0] % 2};
  const auto count = stored.dim(0);
  const auto r = static_cast<std::size_t>(result.residues), s = static_cast<std::size_t>(result.side);
  const auto values = stored.to_vector();
  std::vector<float> padded(static_cast<std::size_t>(count) * s * s);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto map = i / (r * r), row = i % (r * r) / r, column = i % r;
    require(values[i] >= 0 && values[i] <= 1, "[contact_maps] {}: map {} has {} at row {}, column {}; contacts are from 0 to 1",
            path.string(), map, values[i], row, column);
    padded[(map * s + row) * s + column] = static_cast<float>(values[i]);
  }
  data::Bytes bytes(padded.size() * sizeof(float));
  std::memcpy(bytes.data(), padded.data(), bytes.size());
  data::Targets targets{.type = {.type = DType::float32, .shape = {result.side * result.side}}, .values = bytes};
  data::Samples samples{
      .file = path, .count = count, .extents = {1, result.side, result.side}, .type = DType::float32, .values = std::move(bytes)};
  result.source = std::make_shared<data::MemorySource>(std::move(samples), std::move(targets));
  result.native = read_numbers(path, names.native, asked, count);
  result.chain.assign(static_cast<std::size_t>(count), 0);
  const auto chains = read_numbers(path, names.chain, asked, count);
  for (std::size_t i = 0; i < chains.size(); ++i) result.chain[i] = std::llround(chains[i]);
  return result;
}

ChainSplit split_chains(const std::vector<std::int64_t>& chain, double fraction) {
  ChainSplit result;
  const std::set<std::int64_t> all(chain.begin(), chain.end());
  // The parts of one chain are its maps.
  const auto parts = all.size() > 1 ? all.size() : chain.size();
  const auto kept = std::max<std::size_t>(1, static_cast<std::size_t>(std::llround(fraction * static_cast<double>(parts))));
  require(kept<parts, "[contact_maps] of {} {} {} are kept; none is left for training", parts, all.size()> 1 ? "chains" : "maps",
          kept);
  std::set<std::int64_t> last;
  for (auto at = all.rbegin(); all.size() > 1 && last.size() < kept; ++at) last.insert(*at);
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const bool is_kept = all.size() > 1 ? last.contains(chain[i]) : i + kept >= chain.size();
    (is_kept ? result.kept : result.training).push_back(static_cast<std::int64_t>(i));
  }
  return result;
}

}  // namespace mpigrad::contacts
