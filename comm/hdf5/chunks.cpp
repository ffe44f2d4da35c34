// Keeps unpacked chunks of datasets that are read in boxes. HDF5 itself keeps them as long as a dataset is open, and by default
// only if they fit into 1 MiB.

#include <algorithm>
#include <array>
#include <list>

#include "comm/hdf5/detail.h"
#include "framework/base/host_memory.h"

namespace mpigrad::hdf5 {

namespace {

constexpr std::int64_t most_room = std::int64_t{1} << 28, least_room = std::int64_t{1} << 20;
constexpr std::size_t most_kept = 16;

struct Kept {
  hid_t file;
  std::string name;
  Handle dataset;
  std::size_t bytes;
};

// The kept datasets, used by the I/O thread only; the one read last comes first. Never destroyed, because HDF5 may be closed
// before.
std::list<Kept>& all_kept() {
  static auto* all = new std::list<Kept>;
  return *all;
}

// The room for all datasets of this process together, in bytes.
std::int64_t room_of_process() { return std::clamp(available_host_bytes() / 64, least_room, most_room); }

}  // namespace

ChunkRoom chunk_room(hid_t dataset, std::span<const std::int64_t> begin, std::span<const std::int64_t> end) {
  const Handle creation(H5Dget_create_plist(dataset), H5Pclose), type(H5Dget_type(dataset), H5Tclose);
  if (H5Pget_layout(creation) != H5D_CHUNKED || H5Pget_nfilters(creation) <= 0) return {};
  std::array<hsize_t, H5S_MAX_RANK> chunk{}, extents{};
  const auto rank = static_cast<std::size_t>(std::max(0, H5Pget_chunk(creation, H5S_MAX_RANK, chunk.data())));
  const Handle space(H5Dget_space(dataset), H5Sclose);
  H5Sget_simple_extent_dims(space, extents.data(), nullptr);
  bool split = false;
  double chunk_bytes = static_cast<double>(H5Tget_size(type)), all_bytes = chunk_bytes;
  for (std::size_t i = 0; i < rank && rank == begin.size() && rank == end.size(); ++i) {
    const auto from = static_cast<hsize_t>(begin[i]), to = static_cast<hsize_t>(end[i]);
    split = split || from % chunk[i] != 0 || (to % chunk[i] != 0 && to < extents[i]);
    chunk_bytes *= static_cast<double>(chunk[i]);
    all_bytes *= static_cast<double>((extents[i] + chunk[i] - 1) / chunk[i] * chunk[i]);
  }
  if (!split) return {};
  // Room for at least two datasets at once: volumes and labels.
  const auto room = static_cast<double>(room_of_process()) / 2;
  const auto bytes = std::min(all_bytes, room);
  if (chunk_bytes > bytes) return {};
  // Chunks of the same slot replace each other: 100 slots for each chunk, and a prime number of slots.
  const auto slots = bytes / chunk_bytes * 100;
  return {static_cast<std::size_t>(bytes), slots < 521 ? 521U : slots < 10007 ? 10007U : 100003U};
}

hid_t keep_open(hid_t file, const std::string& name, Handle dataset, const ChunkRoom& room) {
  auto& all = all_kept();
  const auto most = static_cast<std::size_t>(room_of_process());
  std::size_t bytes = room.bytes;
  for (auto each = all.begin(); each != all.end();) {
    bytes += each->bytes;
    const bool fits = bytes <= most && static_cast<std::size_t>(std::distance(all.begin(), each)) + 1 < most_kept;
    each = fits ? std::next(each) : all.erase(each);
  }
  all.push_front({file, name, std::move(dataset), room.bytes});
  return all.front().dataset;
}

hid_t kept_open(hid_t file, const std::string& name) {
  auto& all = all_kept();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Kept& each) { return each.file == file && each.name == name; });
  if (found == all.end()) return H5I_INVALID_HID;
  all.splice(all.begin(), all, found);
  return found->dataset;
}

void close_kept(hid_t file) {
  std::erase_if(all_kept(), [&](const Kept& each) { return each.file == file; });
}

}  // namespace mpigrad::hdf5
