#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

#include "comm/hdf5/detail.h"
#include "comm/hdf5/gather.h"
#include "comm/together.h"
#include "framework/base/new_file.h"

namespace mpigrad {

using hdf5::check;
using hdf5::Handle;
using hdf5::on_io_thread;

namespace {

// The creation properties of a file, a group or a dataset: without times, so that the same data make the same file.
Handle untimed(hid_t kind) {
  Handle creation(H5Pcreate(kind), H5Pclose);
  H5Pset_obj_track_times(creation, false);
  return creation;
}

}  // namespace

struct Hdf5Writer::State {
  std::filesystem::path path, temporary;
  std::optional<NewFile> place;  // set in the process that has made the file
  bool overwrite = false;
  std::atomic<bool> committed = false;  // set by every rank; ranks that are threads share one state
  Handle file;
  // gathered: rank 0 has the file, and writes in commit() the boxes that the other ranks have kept.
  enum class Sharing { alone, processes, gathered, threads } sharing = Sharing::alone;
  std::vector<hdf5::KeptBox> kept;
  bool here = false;  // HDF5 is called from the rank's own thread, not from the I/O thread

  template <class F>
  auto call(F f) const {
    return on_io_thread(f, here);
  }

  ~State() {
    if (committed) return;
    // A rank failed. Closing a parallel file would wait for the other ranks, which may never come: it stays open.
    io_thread().run([this] {
      std::error_code ignored;
      const auto flushed_to_freed_disk = [&] { return place && ftruncate(place->descriptor(), 0) == 0 && flushed(); };
      if (sharing != Sharing::processes && file >= 0) {
        // Both fail under a limit on the size of files, which applies to memory files, too.
        if (flushed_to_memory() || flushed_to_freed_disk()) file.close();
        else hdf5::leave_open(file);
      }
      H5Eclear2(H5E_DEFAULT);
      file.release();
      std::filesystem::remove(temporary, ignored);
    });
  }

  bool flushed() const { return H5Fflush(file, H5F_SCOPE_LOCAL) >= 0; }
  // A file that cannot be written cannot be closed either, and HDF5 crashes at the end of the program if a file is open.
  // Therefore the last writes go to memory.
  bool flushed_to_memory() const {
    void* handle = nullptr;
    if (H5Fget_vfd_handle(file, H5P_DEFAULT, &handle) < 0) return false;
    const int descriptor = *static_cast<int*>(handle);
    const int disk = fcntl(descriptor, F_DUPFD_CLOEXEC, 0), memory = memfd_create("mpigrad", MFD_CLOEXEC);
    bool done = false;
    if (disk >= 0 && memory >= 0 && dup2(memory, descriptor) >= 0) {
      done = flushed();
      if (!done) dup2(disk, descriptor);  // HDF5 identifies open files by their inode numbers, which must not be reused
    }
    for (const int each : {disk, memory})
      if (each >= 0) ::close(each);
    return done;
  }

  Handle open(const std::string& name) const {
    return {check(H5Dopen2(file, name.c_str(), H5P_DEFAULT), path, fmt::format("no dataset '{}'", name)), H5Dclose};
  }
  // Creates the groups in a dataset's name that do not exist yet. HDF5 would create them, too, but with the time in them.
  void create_groups(const std::string& name) const {
    const Handle creation = untimed(H5P_GROUP_CREATE);
    for (auto slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
      const auto group = name.substr(0, slash);
      if (group.empty() || H5Lexists(file, group.c_str(), H5P_DEFAULT) != 0) continue;
      const Handle made(check(H5Gcreate2(file, group.c_str(), H5P_DEFAULT, creation, H5P_DEFAULT), path,
                              fmt::format("group '{}' cannot be created", group)),
                        H5Gclose);
    }
  }
  Handle create_dataset(const std::string& name, hid_t type, hid_t space, bool placed = false) const {
    create_groups(name);
    const Handle creation = untimed(H5P_DATASET_CREATE);
    if (placed) {
      H5Pset_layout(creation, H5D_CONTIGUOUS);
      H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY), H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
    }
    return {check(H5Dcreate2(file, name.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT), path,
                  fmt::format("dataset '{}' cannot be created", name)),
            H5Dclose};
  }
  void write_box(const std::string& name, std::span<const std::int64_t> begin, std::span<const std::int64_t> end, DType type,
                 const void* data) const {
    call([&] {
      const Handle dataset = open(name);
      const Handle space(H5Dget_space(dataset), H5Sclose);
      const Handle memory = hdf5::select_box(space, begin, end, path, name);
      if (H5Sget_select_npoints(memory) == 0) return;
      check(H5Dwrite(dataset, hdf5::native_type(type), memory, space, H5P_DEFAULT, data), path,
            fmt::format("dataset '{}' cannot be written", name));
    });
  }
  void create_attribute(const std::string& object, const std::string& name, hid_t type, hid_t memory, const void* value) const {
    const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
    const auto what = fmt::format("attribute '{}' of '{}' cannot be written", name, object);
    const Handle attribute(
        check(H5Acreate_by_name(file, object.c_str(), name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), path,
              what),
        H5Aclose);
    check(H5Awrite(attribute, memory, value), path, what);
  }
};

namespace {

bool is_root(const std::shared_ptr<Transport>& transport) { return !transport || transport->rank() == 0; }

// Runs f on rank 0; every rank throws what f threw there, so that all ranks get the error at the same place.
template <class F>
void at_root(const std::shared_ptr<Transport>& transport, F f) {
  if (!transport || transport->size() == 1) return f();
  std::string problem;  // begins with a letter for the type of the error
  const auto attempt = [&] {
    try {
      f();
    } catch (const FileInTheWay& error) {
      problem = fmt::format("w{}", error.what());
    } catch (const std::exception& error) {
      problem = fmt::format("e{}", error.what());
    }
  };
  if (transport->rank() == 0) attempt();
  problem = text_of_rank(*transport, std::move(problem));
  if (problem.starts_with('w')) throw FileInTheWay(problem.substr(1));
  if (!problem.empty()) throw Error(problem.substr(1));
}

void check_target(const std::filesystem::path& path, bool overwrite) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  require(!fs::is_directory(path, ignored), "[hdf5] {}: a folder is in the way", path.string());
  require(overwrite || !is_name_taken(path), "[hdf5] {}: exists already; it is replaced only when asked to overwrite",
          path.string());
  const auto folder = path.parent_path();
  require(folder.empty() || fs::is_directory(folder, ignored), "[hdf5] {}: there is no folder {}", path.string(),
          folder.string());
}

}  // namespace

Hdf5Writer::Hdf5Writer(const std::filesystem::path& path, bool overwrite) : Hdf5Writer(path, overwrite, nullptr) {}

Hdf5Writer::Hdf5Writer(const std::filesystem::path& path, bool overwrite, std::shared_ptr<Transport> transport) {
  using Sharing = State::Sharing;
  transport_ = transport && transport->size() > 1 ? std::move(transport) : nullptr;
  const auto sharing = !transport_                              ? Sharing::alone
                       : transport_->in_one_process()           ? Sharing::threads
                       : hdf5::has_parallel_driver(*transport_) ? Sharing::processes
                                                                : Sharing::gathered;
  require(sharing != Sharing::gathered || transport_->can_ask(), "[hdf5] {}: the {} transport cannot write files", path.string(),
          transport_ ? transport_->name() : "");
  const auto make_state = [&] {
    auto state = std::make_shared<State>();
    state->path = path, state->overwrite = overwrite, state->sharing = sharing;
    state->here = sharing == Sharing::processes && hdf5::parallel_calls_here();
    return state;
  };
  // HDF5's constants are macros that call HDF5: flags are chosen on the I/O thread.
  const auto open = [&](State& state, const std::filesystem::path& temporary, bool exists) {
    state.file = state.call([&] {
      const unsigned flags = exists ? H5F_ACC_TRUNC : H5F_ACC_EXCL;
      const Handle access =
          sharing == Sharing::processes ? hdf5::parallel_access(*transport_) : Handle(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
      H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
      // The format since HDF5 1.8 has checksums of everything except elements, so that damaged files are refused.
      H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_LATEST);
      // Alignment with which elements can be written bypassing the page cache (models/train/checkpoint/write.cpp).
      H5Pset_alignment(access, 1 << 16, 4096);
      const Handle creation = untimed(H5P_FILE_CREATE);
      return Handle(check(H5Fcreate(temporary.c_str(), flags, creation, access), path, "cannot be created"), H5Fclose);
    });
  };
  if (sharing == Sharing::processes) {
    // MPI opens the file by name on all ranks: rank 0 creates it, and HDF5 finds it empty.
    const auto state = make_state();
    at_root(transport_, [&] { check_target(path, overwrite), state->place.emplace(path, "hdf5"); });
    state->temporary = text_of_rank(*transport_, state->place ? state->place->temporary().string() : std::string());
    open(*state, state->temporary, true);
    state_ = state;
    return;
  }
  const auto make = [&] {
    check_target(path, overwrite);
    const auto state = make_state();
    state->place.emplace(path, "hdf5", [&](const std::filesystem::path& name) {
      open(*state, name, false);
      void* handle = nullptr;
      const int descriptor = on_io_thread([&] { return H5Fget_vfd_handle(state->file, H5P_DEFAULT, &handle); }) < 0
                                 ? -1
                                 : fcntl(*static_cast<int*>(handle), F_DUPFD_CLOEXEC, 0);
      require(descriptor >= 0, "[hdf5] {}: cannot be created: HDF5's default driver is needed", path.string());
      return descriptor;
    });
    state->temporary = state->place->temporary();
    return state;
  };
  if (sharing == Sharing::alone) {
    state_ = make();
    return;
  }
  at_root(transport_, [&] { state_ = make(); });
  if (sharing == Sharing::gathered) {
    if (!is_root(transport_)) state_ = make_state();
    return;
  }
  // Deleted by the last rank that has taken the state. If a rank fails before, it is lost, but does not keep the state.
  struct Shared {
    std::weak_ptr<State> state;
    std::atomic<int> left;
  };
  std::int64_t address = 0;
  if (is_root(transport_))
    address = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(new Shared{state_, transport_->size()}));
  transport_->bcast(&address, 1, DType::int64, 0);
  auto* shared = reinterpret_cast<Shared*>(static_cast<std::intptr_t>(address));
  if (!is_root(transport_)) state_ = shared->state.lock();
  require(state_ != nullptr, "[hdf5] {}: the rank that made the file has failed", path.string());
  if (--shared->left == 0) delete shared;
}

Hdf5Writer::~Hdf5Writer() = default;

// Changes the file's structure by f: on all processes together, or on the one rank that does it for all.
template <class F>
void Hdf5Writer::everywhere(F f) {
  const auto sharing = state_->sharing;
  if (sharing == State::Sharing::threads || sharing == State::Sharing::gathered) at_root(transport_, [&] { on_io_thread(f); });
  else state_->call(f);
}

namespace {

Handle space_of(const Shape& shape) {
  std::vector<hsize_t> extents(shape.begin(), shape.end());
  return {shape.rank() == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(shape.rank(), extents.data(), nullptr), H5Sclose};
}

}  // namespace

void Hdf5Writer::create(const std::string& name, const Shape& shape, DType type) {
  everywhere([&] { state_->create_dataset(name, hdf5::file_type(type), space_of(shape)); });
}

std::int64_t Hdf5Writer::place(const std::string& name, const Shape& shape, DType type) {
  require(state_->sharing == State::Sharing::alone, "[hdf5] {}: place() needs a writer of one process", state_->path.string());
  return on_io_thread([&]() -> std::int64_t {
    const Handle dataset = state_->create_dataset(name, hdf5::file_type(type), space_of(shape), true);
    if (shape.elements() == 0) return -1;
    const auto offset = H5Dget_offset(dataset);
    require(offset != HADDR_UNDEF, "[hdf5] {}: dataset '{}' has no position in the file", state_->path.string(), name);
    return static_cast<std::int64_t>(offset);
  });
}

const std::filesystem::path& Hdf5Writer::temporary() const { return state_->temporary; }

void Hdf5Writer::write_box(const std::string& name, std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
                           DType type, const void* data) {
  if (state_->sharing == State::Sharing::gathered && !is_root(transport_))
    state_->kept.push_back(hdf5::kept_box(name, begin, end, type, data));
  else state_->write_box(name, begin, end, type, data);
}

void Hdf5Writer::write(const std::string& name, const Shape& shape, DType type, const void* data) {
  create(name, shape, type);
  const std::vector<std::int64_t> begin(static_cast<std::size_t>(shape.rank()), 0);
  if (is_root(transport_)) write_box(name, begin, shape.span(), type, data);
}

void Hdf5Writer::write_strings(const std::string& name, const std::vector<std::string>& values) {
  std::size_t length = 1;
  for (const auto& value : values) length = std::max(length, value.size());
  std::string characters;
  for (const auto& value : values) characters.append(value).append(length - value.size(), '\0');
  const auto text_type = [&] {
    Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type, length), H5Tset_strpad(type, H5T_STR_NULLPAD);
    return type;
  };
  everywhere([&] {
    const hsize_t extent = values.size();
    const Handle space(H5Screate_simple(1, &extent, nullptr), H5Sclose);
    state_->create_dataset(name, text_type(), space);
  });
  if (is_root(transport_) && !values.empty())
    state_->call([&] {
      check(H5Dwrite(state_->open(name), text_type(), H5S_ALL, H5S_ALL, H5P_DEFAULT, characters.data()), state_->path,
            fmt::format("dataset '{}' cannot be written", name));
    });
}

void Hdf5Writer::attribute(const std::string& object, const std::string& name, double value) {
  everywhere([&] { state_->create_attribute(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value); });
}

void Hdf5Writer::attribute(const std::string& object, const std::string& name, std::int64_t value) {
  everywhere([&] { state_->create_attribute(object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value); });
}

void Hdf5Writer::attribute(const std::string& object, const std::string& name, const std::string& value) {
  everywhere([&] {
    const Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type, std::max<std::size_t>(1, value.size())), H5Tset_strpad(type, H5T_STR_NULLPAD);
    state_->create_attribute(object, name, type, type, value.c_str());
  });
}

void Hdf5Writer::close() {
  state_->call([&] {
    if (state_->file < 0) return;
    check(H5Fflush(state_->file, H5F_SCOPE_LOCAL), state_->path, "cannot be completed");
    check(state_->file.close(), state_->path, "cannot be completed");
    if (state_->place) flock(state_->place->descriptor(), LOCK_UN);  // HDF5's lock would keep readers out
  });
}

void Hdf5Writer::commit() {
  if (state_->sharing == State::Sharing::threads) {
    transport_->barrier();  // all have written
    at_root(transport_, [this] { close(); });
  } else if (state_->sharing == State::Sharing::gathered) {
    const auto failure = hdf5::gather_boxes(*transport_, std::move(state_->kept), [this](const hdf5::KeptBox& box) {
      state_->write_box(box.dataset, box.begin, box.end, box.type, box.values.data());
    });
    at_root(transport_, [&] {
      if (failure) std::rethrow_exception(failure);
      close();
    });
  } else {
    close();
    if (transport_) transport_->barrier();  // a rank that failed never arrives
  }
  at_root(transport_, [&] {
    check_target(state_->path, state_->overwrite);
    state_->place->commit();
    state_->place.reset();
  });
  if (transport_) transport_->barrier();
  state_->committed = true;
}

}  // namespace mpigrad
