#include "comm/hdf5/hdf5_file.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <new>
#include <set>

#include "comm/hdf5/detail.h"
#include "framework/base/host_memory.h"
#include "framework/base/joined.h"
#include "framework/base/printable.h"

namespace mpigrad {

namespace hdf5 {

namespace {

// Complex numbers as h5py stores them: r and i. Created once for each type, for the life of the process.
hid_t compound(hid_t part) {
  const auto size = H5Tget_size(part);
  const hid_t made = H5Tcreate(H5T_COMPOUND, 2 * size);
  return H5Tinsert(made, "r", 0, part), H5Tinsert(made, "i", size, part), made;
}

}  // namespace

hid_t native_type(DType type) {
  static const hid_t complex64 = compound(H5T_NATIVE_FLOAT), complex128 = compound(H5T_NATIVE_DOUBLE);
  switch (type) {
    case DType::complex64: return complex64;
    case DType::complex128: return complex128;
    case DType::float32: return H5T_NATIVE_FLOAT;
    case DType::float64: return H5T_NATIVE_DOUBLE;
    case DType::int64: return H5T_NATIVE_INT64;
    case DType::int32: return H5T_NATIVE_INT32;
    case DType::int16: return H5T_NATIVE_INT16;
    case DType::uint16: return H5T_NATIVE_UINT16;
    case DType::uint8:
    case DType::boolean: return H5T_NATIVE_UINT8;
    case DType::bfloat16:
    case DType::float16: break;
  }
  fail("[hdf5] elements are read and written as float32, not as {}: cast them", name_of(type));
}

namespace {

// The file types of 16-bit floating-point numbers. HDF5 has no names for them, but converts any format given by its bits; the
// same formats as h5py's. Created once, for the life of the process.
hid_t half_type(DType type) {
  const auto make = [](std::size_t exponent, std::size_t bias) {
    const hid_t made = H5Tcopy(H5T_IEEE_F32LE);
    H5Tset_fields(made, 15, 15 - exponent, exponent, 0, 15 - exponent);
    H5Tset_size(made, 2), H5Tset_ebias(made, bias);
    return made;
  };
  static const hid_t float16 = make(5, 15), bfloat16 = make(8, 127);
  return type == DType::float16 ? float16 : bfloat16;
}

}  // namespace

hid_t file_type(DType type) {
  static const hid_t complex64 = compound(H5T_IEEE_F32LE), complex128 = compound(H5T_IEEE_F64LE);
  switch (type) {
    case DType::complex64: return complex64;
    case DType::complex128: return complex128;
    case DType::float32: return H5T_IEEE_F32LE;
    case DType::float64: return H5T_IEEE_F64LE;
    case DType::int64: return H5T_STD_I64LE;
    case DType::int32: return H5T_STD_I32LE;
    case DType::int16: return H5T_STD_I16LE;
    case DType::uint16: return H5T_STD_U16LE;
    case DType::uint8:
    case DType::boolean: return H5T_STD_U8LE;
    case DType::bfloat16:
    case DType::float16: return half_type(type);
  }
  fail("[hdf5] there is no element type {} in files", name_of(type));
}

Handle file_access() {
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fclose_degree(access, H5F_CLOSE_WEAK);  // the same as for the sources of virtual datasets, which HDF5 opens
  return access;
}

Handle select_box(hid_t space, std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
                  const std::filesystem::path& path, const std::string& dataset) {
  std::array<hsize_t, H5S_MAX_RANK> extents{}, start{}, count{};
  const auto rank = static_cast<std::size_t>(std::max(0, H5Sget_simple_extent_ndims(space)));
  require(begin.size() == rank && end.size() == rank, "[hdf5] {}: dataset '{}' has {} dimensions, the box {}", path.string(),
          dataset, rank, begin.size());
  H5Sget_simple_extent_dims(space, extents.data(), nullptr);
  bool empty = false;
  for (std::size_t i = 0; i < rank; ++i) {
    require(begin[i] >= 0 && begin[i] <= end[i] && end[i] <= static_cast<std::int64_t>(extents[i]),
            "[hdf5] {}: dataset '{}' has shape [{}], the box is [{}] to [{}]", path.string(), dataset,
            fmt::join(extents.data(), extents.data() + rank, ", "), joined(begin, ", "), joined(end, ", "));
    start[i] = static_cast<hsize_t>(begin[i]), count[i] = static_cast<hsize_t>(end[i] - begin[i]);
    empty = empty || count[i] == 0;
  }
  if (rank == 0) return {H5Screate(H5S_SCALAR), H5Sclose};
  Handle memory(check(H5Screate_simple(static_cast<int>(rank), count.data(), nullptr), path, "no memory space"), H5Sclose);
  if (empty) H5Sselect_none(space), H5Sselect_none(memory);
  else check(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr), path, "no such box");
  return memory;
}

}  // namespace hdf5

using hdf5::check;
using hdf5::Handle;
using hdf5::on_io_thread;

bool hdf5_available() { return true; }

namespace {

// The status of an open file, even if another file has taken its name; zeros with st_size -1 if its driver has no descriptor.
struct stat status_of_open(hid_t file) {
  void* descriptor = nullptr;
  struct stat info {};
  const bool found = H5Fget_vfd_handle(file, H5P_DEFAULT, &descriptor) >= 0 && descriptor != nullptr &&
                     ::fstat(*static_cast<const int*>(descriptor), &info) == 0;
  if (!found) info.st_size = -1;
  return info;
}
off_t size_of_open(hid_t file) { return status_of_open(file).st_size; }

// The most bytes that texts in an open file can have together. A sparse file is longer than its stored blocks, and some file
// systems count no blocks for small files.
double most_of_texts(hid_t file) {
  constexpr double block = 512, small = 1U << 26U;
  const auto info = status_of_open(file);
  return std::max(std::min(block * static_cast<double>(info.st_blocks), static_cast<double>(info.st_size)), small);
}

}  // namespace

struct Hdf5Reader::State {
  std::filesystem::path path;
  Handle file;
  off_t bytes = 0;                       // size when it was opened
  mutable std::set<std::string> within;  // datasets that have been checked
  mutable hdf5::Limits limits;           // virtual datasets keep its address
  ~State() {
    io_thread().run([this] { hdf5::close_kept(file), file.close(); });
  }

  Handle open(const std::string& name, const hdf5::ChunkRoom& room = {}) const;
  Hdf5Dataset describe(const std::string& name) const;
  void read(const std::string& name, std::span<const std::int64_t> begin, std::span<const std::int64_t> end, DType type,
            void* out) const;
  Handle open_attribute(const std::string& object, const std::string& name) const;
};

namespace {

// Owns the texts of variable length that HDF5 reads, even if the read fails halfway.
class TextMemory {
 public:
  void use_in(hid_t transfer) {
    const auto take = [](std::size_t bytes, void* memory) { return static_cast<TextMemory*>(memory)->take(bytes); };
    H5Pset_vlen_mem_manager(
        transfer, take, this, [](void*, void*) {}, this);
  }

 private:
  // No exception may pass through HDF5.
  void* take(std::size_t bytes) noexcept {
    try {
      return taken_.emplace_back(std::make_unique<char[]>(bytes)).get();
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  std::vector<std::unique_ptr<char[]>> taken_;
};

}  // namespace

Handle Hdf5Reader::State::open(const std::string& name, const hdf5::ChunkRoom& room) const {
  limits.refused.clear();
  const Handle access = hdf5::access_within(H5P_DATASET_ACCESS, limits);
  if (room.bytes > 0) H5Pset_chunk_cache(access, room.slots, room.bytes, 0);  // 0: the chunk read last is kept longest
  Handle dataset(H5Dopen2(file, name.c_str(), access), H5Dclose);
  if (dataset >= 0) {
    if (!within.contains(name)) hdf5::require_elements_within(dataset, name, limits), within.insert(name);
    return dataset;
  }
  const auto text = hdf5::error_text();
  const auto& reason = limits.refused;
  const Handle object(H5Oopen(file, name.c_str(), access), H5Oclose);
  const bool linked = H5Lexists(file, name.c_str(), access) > 0 && (object < 0 || H5Iget_type(object) == H5I_DATASET);
  H5Eclear2(H5E_DEFAULT);
  require(!linked && reason.empty(), "[hdf5] {}: dataset '{}' cannot be opened: {}", path.string(), printable(name),
          reason.empty() ? text : reason);
  std::vector<std::string> names;
  for (const auto& each : hdf5::list_datasets(file, limits)) names.push_back(printable(each.name, 100));
  const auto total = names.size();
  if (total > 12) names.resize(12), names.emplace_back("...");
  fail("[hdf5] {}: no dataset '{}'; there {}: {}", path.string(), printable(name), total == 1 ? "is" : "are",
       total == 0 ? "none" : joined(names, ", "));
}

Hdf5Dataset Hdf5Reader::State::describe(const std::string& name) const { return hdf5::describe(open(name), name); }

void Hdf5Reader::State::read(const std::string& name, std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
                             DType type, void* out) const {
  Handle opened;
  hid_t dataset = hdf5::kept_open(file, name);
  if (dataset < 0) {
    opened = open(name), dataset = opened;
    if (const auto room = hdf5::chunk_room(dataset, begin, end); room.bytes > 0) {
      opened.close();
      dataset = hdf5::keep_open(file, name, open(name, room), room);
    }
  }
  const auto stored = hdf5::describe(dataset, name);
  require(stored.kind == Hdf5Dataset::Kind::number, "[hdf5] {}: dataset '{}' holds {}, not numbers that can be read as {}",
          path.string(), name, stored.stored, name_of(type));
  require(is_complex(type) == is_complex(stored.type), "[hdf5] {}: dataset '{}' is {}, which is not read as {}", path.string(),
          name, stored.stored, name_of(type));
  require(is_differentiable(type) || !is_floating(stored.type), "[hdf5] {}: dataset '{}' is {}, which {} would round",
          path.string(), name, stored.stored, name_of(type));
  const Handle space(H5Dget_space(dataset), H5Sclose);
  const Handle memory = hdf5::select_box(space, begin, end, path, name);
  if (H5Sget_select_npoints(memory) == 0) return;
  const auto sources = hdf5::open_sources(dataset, begin, end);
  bool out_of_range = false;
  const Handle transfer(H5Pcreate(H5P_DATASET_XFER), H5Pclose);
  const H5T_conv_except_func_t refuse = [](H5T_conv_except_t kind, hid_t, hid_t, void*, void*, void* data) {
    if (kind != H5T_CONV_EXCEPT_RANGE_HI && kind != H5T_CONV_EXCEPT_RANGE_LOW) return H5T_CONV_UNHANDLED;
    *static_cast<bool*>(data) = true;
    return H5T_CONV_ABORT;
  };
  H5Pset_type_conv_cb(transfer, refuse, &out_of_range);
  const auto status = H5Dread(dataset, hdf5::native_type(type), memory, space, transfer, out);
  require(!out_of_range, "[hdf5] {}: dataset '{}' ({}) holds a value that does not fit {}", path.string(), name, stored.stored,
          name_of(type));
  try {
    check(status, path, fmt::format("dataset '{}' cannot be read", name));
  } catch (const Error&) {
    hdf5::require_filters(dataset, path, name);
    throw;
  }
  // HDF5 reads zeros after a file's end.
  const auto now = size_of_open(file);
  require(now >= bytes, "[hdf5] {}: the file has become shorter since it was opened: {} bytes instead of {}", path.string(), now,
          bytes);
}

Handle Hdf5Reader::State::open_attribute(const std::string& object, const std::string& name) const {
  const Handle access = hdf5::access_within(H5P_LINK_ACCESS, limits);
  Handle attribute(H5Aopen_by_name(file, object.c_str(), name.c_str(), H5P_DEFAULT, access), H5Aclose);
  check<hid_t>(attribute, path, fmt::format("no attribute '{}' of '{}'", name, object));
  hdf5::require_within(attribute, object, limits);
  return attribute;
}

Hdf5Reader::Hdf5Reader(const std::filesystem::path& path, Hdf5Reach reach) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  require(fs::exists(path, ignored), "[hdf5] {}: no such file", path.string());
  require(!fs::is_directory(path, ignored), "[hdf5] {}: a folder, not a file", path.string());
  // Opening a pipe would wait for a writer.
  require(fs::is_regular_file(path, ignored), "[hdf5] {}: not a regular file (a pipe, a socket or a device)", path.string());
  state_ = on_io_thread([&] {
    const auto state = std::make_shared<State>();
    state->path = path, state->limits = hdf5::limits_of(path, reach);
    // If this check itself fails, H5Fopen explains why the file cannot be opened.
    require(H5Fis_hdf5(path.c_str()) != 0, "[hdf5] {}: not an HDF5 file", path.string());
    const Handle access = hdf5::file_access();
    state->file = Handle(check(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), path, "cannot be opened"), H5Fclose);
    state->bytes = size_of_open(state->file);
    return state;
  });
}

const std::filesystem::path& Hdf5Reader::path() const { return state_->path; }

std::vector<Hdf5Dataset> Hdf5Reader::datasets() const {
  return on_io_thread([&] { return hdf5::list_datasets(state_->file, state_->limits); });
}

bool Hdf5Reader::contains(const std::string& name) const {
  return on_io_thread([&] {
    auto& limits = state_->limits;
    limits.refused.clear();
    const Handle access = hdf5::access_within(H5P_LINK_ACCESS, limits);
    const Handle object(H5Oopen(state_->file, name.c_str(), access), H5Oclose);
    H5Eclear2(H5E_DEFAULT);
    require(limits.refused.empty(), "[hdf5] {}: dataset '{}' cannot be opened: {}", path().string(), printable(name),
            limits.refused);
    if (object < 0 || H5Iget_type(object) != H5I_DATASET) return false;
    hdf5::require_elements_within(object, name, limits);
    return true;
  });
}

Hdf5Dataset Hdf5Reader::describe(const std::string& name) const {
  return on_io_thread([&] { return state_->describe(name); });
}

Shape Hdf5Reader::whole(const std::string& name, std::size_t bytes) const {
  const auto dataset = describe(name);
  require_host_memory(fmt::format("[hdf5] {}: dataset '{}', {}", path().string(), printable(name), dataset.shape),
                      static_cast<double>(dataset.shape.elements()) * static_cast<double>(bytes));
  return dataset.shape;
}

void Hdf5Reader::read(const std::string& name, std::span<const std::int64_t> begin, std::span<const std::int64_t> end, DType type,
                      void* out) const {
  on_io_thread([&] { state_->read(name, begin, end, type, out); });
}

std::future<void> Hdf5Reader::read_async(const std::string& name, std::span<const std::int64_t> begin,
                                         std::span<const std::int64_t> end, DType type, void* out) const {
  return io_thread().submit([state = state_, name, type, out, begin = std::vector(begin.begin(), begin.end()),
                             end = std::vector(end.begin(), end.end())] { state->read(name, begin, end, type, out); });
}

std::vector<std::string> Hdf5Reader::read_strings(const std::string& name) const {
  return on_io_thread([&] {
    const Handle dataset = state_->open(name);
    const auto stored = hdf5::describe(dataset, name);
    require(stored.kind == Hdf5Dataset::Kind::text, "[hdf5] {}: dataset '{}' is {}, not text", path().string(), name,
            stored.stored);
    const Handle type(H5Dget_type(dataset), H5Tclose), transfer(H5Pcreate(H5P_DATASET_XFER), H5Pclose);
    const auto where = fmt::format("[hdf5] {}: dataset '{}'", path().string(), printable(name));
    const auto count = static_cast<std::size_t>(stored.shape.elements()), size = H5Tget_size(type);
    require_host_memory(where, static_cast<double>(count) * (64 + 2 * static_cast<double>(size)));
    const Handle file(H5Iget_file_id(dataset), H5Fclose);
    TextMemory memory;
    memory.use_in(transfer);
    const auto sources = hdf5::open_sources(dataset, {}, {});
    const auto read = [&](hid_t as, void* out) { return H5Dread(dataset, as, H5S_ALL, H5S_ALL, transfer, out); };
    const auto cannot = fmt::format("dataset '{}' cannot be read", name);
    if (H5Tis_variable_str(type) > 0) {
      // A file can refer to one text many times.
      const auto claimed = check(hdf5::claimed_bytes(type, count, read), path(), cannot);
      require(claimed <= most_of_texts(file), "{} has longer texts than its file has bytes", where);
      require_host_memory(where, 3 * claimed);
    }
    std::vector<char> values(count * size);
    check(read(type, values.data()), path(), cannot);
    return hdf5::texts_in(values.data(), type, count);
  });
}

bool Hdf5Reader::has_attribute(const std::string& object, const std::string& name) const {
  return on_io_thread([&] {
    const Handle access = hdf5::access_within(H5P_LINK_ACCESS, state_->limits);
    const bool found = H5Aexists_by_name(state_->file, object.c_str(), name.c_str(), access) > 0;
    H5Eclear2(H5E_DEFAULT);
    return found;
  });
}

double Hdf5Reader::number_attribute(const std::string& object, const std::string& name) const {
  return on_io_thread([&] {
    const Handle attribute = state_->open_attribute(object, name);
    const Handle space(H5Aget_space(attribute), H5Sclose), type(H5Aget_type(attribute), H5Tclose);
    require(H5Sget_simple_extent_npoints(space) == 1 && H5Tget_class(type) != H5T_STRING,
            "[hdf5] {}: attribute '{}' of '{}' is not one number", path().string(), name, object);
    double value = 0;
    check(H5Aread(attribute, H5T_NATIVE_DOUBLE, &value), path(), fmt::format("attribute '{}' cannot be read", name));
    return value;
  });
}

std::string Hdf5Reader::text_attribute(const std::string& object, const std::string& name) const {
  return on_io_thread([&] {
    const Handle attribute = state_->open_attribute(object, name);
    const Handle space(H5Aget_space(attribute), H5Sclose), type(H5Aget_type(attribute), H5Tclose);
    require(H5Sget_simple_extent_npoints(space) == 1 && H5Tget_class(type) == H5T_STRING,
            "[hdf5] {}: attribute '{}' of '{}' is not one text", path().string(), name, object);
    const auto where = fmt::format("[hdf5] {}: attribute '{}' of '{}'", path().string(), printable(name), printable(object));
    require_host_memory(where, 2 * static_cast<double>(H5Tget_size(type)));
    const auto read = [&](hid_t as, void* out) { return H5Aread(attribute, as, out); };
    const auto cannot = fmt::format("attribute '{}' cannot be read", name);
    if (H5Tis_variable_str(type) > 0) {
      constexpr double most = 1U << 24U;
      const auto claimed = check(hdf5::claimed_bytes(type, 1, read), path(), cannot);
      require(claimed <= most, "{} claims {:.0f} bytes of text, more than {:.0f}", where, claimed, most);
    }
    std::vector<char> value(H5Tget_size(type));
    check(read(type, value.data()), path(), cannot);
    auto text = hdf5::texts_in(value.data(), type, 1).front();
    if (H5Tis_variable_str(type) > 0) H5Dvlen_reclaim(type, space, H5P_DEFAULT, value.data());
    return text;
  });
}

}  // namespace mpigrad
