#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>

#include "comm/distributed/redistribute.h"
#include "comm/distributed/same_parameters.h"
#include "comm/together.h"
#include "framework/base/joined.h"
#include "framework/engine/activity.h"
#include "framework/tensor/content_hash.h"
#include "framework/tensor/tensor_name.h"
#include "models/train/checkpoint/file.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad {
namespace checkpoint_file {
namespace {

std::string text_of(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

// The value that a file of float16 will return.
Tensor rounded(const std::string& name, const Tensor& value) {
  Untaped scope;
  UseDevice device(DeviceKind::cpu);
  const auto result = cast(cast(value, DType::float16), value.dtype());
  const auto before = value.to_vector(), after = result.to_vector();
  for (std::size_t i = 0; i < before.size(); ++i)
    require(std::isfinite(after[i]) || !std::isfinite(before[i]), "[checkpoint] {} holds {}, which float16 cannot", name,
            before[i]);
  return result;
}

}  // namespace

std::string checksum_of(DType type, const Shape& shape, const void* values) {
  return text_of(content_hash(fmt::format("{} {}", name_of(type), shape)) + content_hash(type, values, shape.elements()));
}

void Seal::add(const std::string& name, const std::string& text) { hash_ += content_hash(name + "=" + text); }
void Seal::add(const std::string& name, double number) { add(name, text_of(std::bit_cast<std::uint64_t>(number))); }
void Seal::add_notes(const std::vector<std::string>& notes) { add(notes_name, joined(notes, "\n")); }
std::string Seal::text() const { return text_of(hash_); }

std::vector<NamedTensor> network_tensors(nn::Module& net) {
  std::vector<NamedTensor> list;
  auto& parameters = net.parameters();
  require(parameters.size() > 0, "[checkpoint] the network has no parameters: call build() first");
  for (std::size_t i = 0; i < parameters.size(); ++i) list.push_back({"parameters/" + parameters[i].name, parameters[i].value});
  for (const auto& [name, value] : net.all_buffers()) list.push_back({"buffers/" + name, value});
  return list;
}

void append(std::vector<NamedTensor>& list, const std::string& group, const std::vector<NamedTensor>& more) {
  for (const auto& tensor : more) list.push_back({group + "/" + tensor.name, tensor.value});
}

namespace {

// Redistributes a tensor whose blocks are short runs of elements in the whole tensor: if one axis splits it, along its first
// dimension instead; if two axes do, replicated along the axis that splits the inner dimension.
Tensor in_rows(const Tensor& x) {
  constexpr std::int64_t long_enough = 1 << 16;  // contiguous bytes
  const auto& layout = x.layout();
  if (!layout) return x;
  std::vector<int> axes;
  for (std::size_t a = 0; a < layout->axes.size(); ++a)
    if (layout->axes[a].placement == Placement::split) axes.push_back(static_cast<int>(a));
  if (axes.empty() || axes.size() > 2) return x;
  // The axis that splits the innermost dimension.
  const auto axis = static_cast<std::size_t>(*std::max_element(axes.begin(), axes.end(), [&](int a, int b) {
    return layout->axes[static_cast<std::size_t>(a)].dimension < layout->axes[static_cast<std::size_t>(b)].dimension;
  }));
  const int dimension = layout->axes[axis].dimension;
  // The same number on every rank, independent of its block.
  std::int64_t run = size_of(x.dtype()) * (layout->global[dimension] / layout->grid->extents[axis]);
  for (int d = dimension + 1; d < x.rank(); ++d) run *= layout->global[d];
  if (dimension == 0 || run >= long_enough) return x;
  auto rows = std::make_shared<Layout>(*layout);
  if (axes.size() == 2) rows->axes[axis] = {};
  else if (layout->global[0] < layout->grid->extents[axis]) return x;
  else rows->axes[axis] = {Placement::split, 0, balanced_cuts(layout->global[0], layout->grid->extents[axis])};
  Untaped scope;
  return redistribute(constant(x), rows);
}

}  // namespace

std::vector<NamedTensor> tensors_of(nn::Module& net, const SaveOptions& options) {
  auto tensors = network_tensors(net);
  if (options.optimizer) append(tensors, "optimizer", options.optimizer->state());
  if (options.averages) append(tensors, "averages", options.averages->state());
  for (auto& [name, value] : tensors) value = in_rows(value);
  return tensors;
}

Remarks::Remarks(const SaveOptions& options) {
  for (const auto& [name, text] : options.info.notes) {
    require(!name.empty() && (name + text).find('\n') == std::string::npos && name.find('=') == std::string::npos,
            "[checkpoint] a note is a name without '=' and a text of one line: '{}'", name);
    notes.push_back(name + "=" + text);
  }
  const auto& info = options.info;
  numbers = {{"step", info.step}, {"epoch", info.epoch}};
  if (info.epoch_step > 0) {
    numbers.push_back({"epoch_step", info.epoch_step});
    numbers.push_back({"epoch_steps", info.epoch_steps});
    numbers.push_back({"epoch_loss", info.epoch_loss});
    numbers.push_back({"epoch_samples", info.epoch_samples});
  }
  if (options.optimizer) numbers.push_back({"optimizer_steps", options.optimizer->steps()});
  if (options.averages) numbers.push_back({"average_updates", options.averages->updates()});
  if (options.loss_scale) {
    const auto& state = options.loss_scale->state();
    numbers.push_back({"loss_scale", state.value});
    numbers.push_back({"loss_scale_good_steps", state.good_steps});
    numbers.push_back({"loss_scale_skipped", state.skipped});
  }
}

Contents contents_of(const std::vector<NamedTensor>& tensors, bool half, int rank) {
  Contents result;
  for (const auto& [name, value] : tensors) {
    require(value.device() != DeviceKind::dry, "[checkpoint] {} is on the dry device: {}", name, value);
    const auto& layout = value.layout();
    const bool blocks = layout && layout->has(Placement::split);
    const auto& shape = layout ? layout->global : value.shape();
    const auto item = result.items.size();
    const bool rounds = half && is_floating(value.dtype());
    result.items.push_back({name, shape, value.dtype(), rounds ? DType::float16 : value.dtype()});
    result.shared = result.shared || blocks;
    const auto box =
        blocks ? layout->box() : Box{Shape(std::vector<std::int64_t>(static_cast<std::size_t>(shape.rank()), 0)), shape};
    // The lowest rank with this box writes it.
    int owner = 0;
    while (blocks && !(layout->box(owner) == box)) ++owner;
    const int me = blocks ? layout->grid->rank : rank;
    if (me == owner && box.elements() > 0) result.parts.push_back({item, box, value});
  }
  return result;
}

namespace {

// Calls f(first in the tensor, first in the box, count) for all runs of elements of a box that are contiguous in the whole
// row-major tensor.
template <class F>
void for_runs(const Shape& shape, const Box& box, F f) {
  const auto size = box.extents();
  int last = shape.rank() - 1;  // the dimension whose part is a run; all later ones are complete
  std::int64_t inner = 1;       // elements of the later dimensions
  while (last > 0 && size[last] == shape[last]) inner *= shape[last--];
  const auto run = last < 0 ? 1 : size[last] * inner;
  std::vector<std::int64_t> at(static_cast<std::size_t>(std::max(last, 0)), 0);
  for (std::int64_t done = 0; done < size.elements(); done += run) {
    std::int64_t first = 0;
    for (int d = 0; d < last; ++d) first = first * shape[d] + box.begin[d] + at[static_cast<std::size_t>(d)];
    if (last >= 0) first = (first * shape[last] + box.begin[last]) * inner;
    f(first, done, run);
    for (int d = last - 1; d >= 0 && ++at[static_cast<std::size_t>(d)] == size[d]; --d) at[static_cast<std::size_t>(d)] = 0;
  }
}

// Elements on the host, for the hash and for the file.
struct HostPart {
  const std::byte *values = nullptr, *stored = nullptr;
  Tensor held, rounded;  // their memory, if it is new
};

HostPart on_host(const Item& item, const Part& part) {
  HostPart result;
  if (part.copy) {
    result.values = part.copy;
  } else {
    const auto value = part.read ? part.read() : part.value;
    result.held = value.device() == DeviceKind::cuda ? detail::copied(value, DeviceKind::cpu) : value;
    result.values = result.held.raw();
  }
  result.stored = result.values;
  if (item.stored == item.type) return result;
  require(!part.copy, "[checkpoint] copies are not rounded");
  result.held = rounded(item.name, result.held), result.values = result.held.raw();
  Untaped scope;
  UseDevice device(DeviceKind::cpu);
  result.rounded = cast(constant(result.held), item.stored), result.stored = result.rounded.raw();
  return result;
}

std::uint64_t hash_of(const Item& item, const Box& box, const std::byte* values) {
  std::uint64_t hash = 0;
  for_runs(item.shape, box, [&](std::int64_t first, std::int64_t from, std::int64_t count) {
    hash += content_hash(item.type, values + from * size_of(item.type), count, first);
  });
  return hash;
}

// An open file to which elements are written.
class Elements {
 public:
  explicit Elements(const std::filesystem::path& path)
      : path_(path), file_(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC)) {
    require(file_ >= 0, "[checkpoint] {} cannot be opened by this rank: {}; do all ranks see that folder?", path.string(),
            std::strerror(errno));
#ifdef O_DIRECT
    direct_ = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_DIRECT);  // not supported by every file system
#endif
  }
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;
  ~Elements() {
    close(file_);
    if (direct_ >= 0) close(direct_);
  }
  void put(const std::byte* from, std::int64_t bytes, std::int64_t at) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(from) % block_bytes == 0 && at % block_bytes == 0;
    while (bytes > 0) {
      const bool direct = direct_ >= 0 && aligned && bytes >= block_bytes;
      const auto most = std::min<std::int64_t>(bytes, 1 << 24);
      const auto wanted = direct ? most / block_bytes * block_bytes : most;
      const auto count = pwrite(direct ? direct_ : file_, from, static_cast<std::size_t>(wanted), at);
      if (count < 0 && errno == EINTR) continue;
      if (direct && (count < 0 || count % block_bytes != 0)) {
        close(std::exchange(direct_, -1));  // write without O_DIRECT then
        continue;
      }
      require(count > 0, "[checkpoint] {} could not be written completely: {}", path_.string(), std::strerror(errno));
      from += count, at += count, bytes -= count;
    }
  }
  void synchronise() const {
    require(fsync(file_) == 0, "[checkpoint] {} cannot be completed: {}", path_.string(), std::strerror(errno));
  }

 private:
  std::filesystem::path path_;
  int file_, direct_ = -1;
};

// Sums over the ranks, modulo 2^64, by sums of the halves of the numbers, which cannot overflow.
void add_up(Transport& ranks, std::vector<std::uint64_t>& numbers) {
  std::vector<std::int64_t> halves;
  for (const auto number : numbers)
    halves.push_back(static_cast<std::int64_t>(number & 0xffffffff)), halves.push_back(static_cast<std::int64_t>(number >> 32));
  ranks.allreduce(halves.data(), halves.data(), static_cast<std::int64_t>(halves.size()), DType::int64, CombineOp::sum);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<std::uint64_t>(halves[2 * i]) + (static_cast<std::uint64_t>(halves[2 * i + 1]) << 32);
}

// Writes the structure of the file: everything except the elements. Returns the offset of the elements of each item.
std::vector<std::int64_t> begin_file(Hdf5Writer& file, const Contents& contents, const std::vector<std::uint64_t>& hashes,
                                     const Remarks& remarks) {
  std::vector<std::int64_t> places;
  Seal seal;
  for (std::size_t i = 0; i < contents.items.size(); ++i) {
    const auto& item = contents.items[i];
    places.push_back(file.place(item.name, item.shape, item.stored));
    const auto checksum = text_of(content_hash(fmt::format("{} {}", name_of(item.type), item.shape)) + hashes[i]);
    file.attribute(item.name, checksum_name, checksum);
    seal.add(item.name, checksum);
  }
  if (!remarks.notes.empty()) file.write_strings(notes_name, remarks.notes), seal.add_notes(remarks.notes);
  file.attribute("/", "format", std::string(format_name));
  for (const auto& [name, value] : remarks.numbers)
    std::visit(
        [&, name = name](auto number) {
          file.attribute("/", name, number);
          seal.add(name, static_cast<double>(number));
        },
        value);
  file.attribute("/", checksum_name, seal.text());
  file.close();
  return places;
}

}  // namespace

void write_file(const std::filesystem::path& path, const Contents& contents, const Remarks& remarks, Replaces replaces,
                const std::shared_ptr<Transport>& transport) {
  static_assert(std::endian::native == std::endian::little, "elements are written as they are in memory");
  const auto& ranks = transport;
  const bool first = !ranks || ranks->rank() == 0;
  const auto count = static_cast<std::int64_t>(contents.items.size());
  std::vector<std::uint64_t> hashes(contents.items.size());
  std::vector<std::int64_t> places(contents.items.size());
  std::optional<Hdf5Writer> file;
  together(ranks.get(), [&] {
    for (const auto& part : contents.parts) {
      const auto& item = contents.items[part.item];
      hashes[part.item] += hash_of(item, part.box, on_host(item, part).values);
    }
  });
  if (ranks) add_up(*ranks, hashes);
  std::filesystem::path temporary;
  together(ranks.get(), [&] {
    if (!first) return;
    if (replaces == Replaces::checkpoints) require_replaceable(path);
    file.emplace(path, replaces != Replaces::nothing);
    places = begin_file(*file, contents, hashes, remarks), temporary = file->temporary();
  });
  if (ranks) {
    ranks->bcast(places.data(), count, DType::int64, 0);
    temporary = text_of_rank(*ranks, temporary.string());
  }
  together(ranks.get(), [&] {
    if (contents.parts.empty()) return;
    Elements elements(temporary);
    for (const auto& part : contents.parts) {
      const auto& item = contents.items[part.item];
      const auto host = on_host(item, part);
      const auto size = size_of(item.stored);
      for_runs(item.shape, part.box, [&](std::int64_t at, std::int64_t from, std::int64_t run) {
        elements.put(host.stored + from * size, run * size, places[part.item] + at * size);
      });
    }
    elements.synchronise();
  });
  together(ranks.get(), [&] {
    if (!first) return;
    if (replaces == Replaces::checkpoints) require_replaceable(path);  // checked again: writing took time
    file->commit();
  });
}

void throw_everywhere(const Communicator& world, std::string error) {
  error = text_of_rank(world.transport(), std::move(error));
  if (!error.empty()) throw SharedError(error);
}

}  // namespace checkpoint_file

void save_checkpoint(const std::filesystem::path& path, nn::Module& net, const Communicator& world, const SaveOptions& options) {
  const detail::SlowPhase phase(detail::SlowPhase::checkpoint);
  require_same_parameters(fmt::format("[checkpoint] {} is not written", path.string()), net.parameters(), world.transport());
  const auto contents = checkpoint_file::contents_of(checkpoint_file::tensors_of(net, options), options.half, world.rank());
  std::optional<checkpoint_file::Remarks> remarks;
  const auto& transport = world.shared_transport();
  together(transport.get(), [&] { remarks.emplace(options); });
  constexpr auto replaces = checkpoint_file::Replaces::checkpoints;
  if (contents.shared) return checkpoint_file::write_file(path, contents, *remarks, replaces, transport);
  together(transport.get(), [&] {
    if (world.rank() == 0) checkpoint_file::write_file(path, contents, *remarks, replaces, nullptr);
  });
}

void write_weights(const std::filesystem::path& path, const CheckpointTensors& contents, bool half, bool overwrite) {
  std::vector<std::string> names;
  for (const auto& [name, value] : contents.tensors) names.push_back(name);
  require_tensor_names(names, "[checkpoint] " + path.string());
  for (const auto& name : names)
    require(name.starts_with("parameters/") || name.starts_with("buffers/"),
            "[checkpoint] weights are parameters/NAME or buffers/NAME, not {}", name);
  using checkpoint_file::Replaces;
  checkpoint_file::write_file(path, checkpoint_file::contents_of(contents.tensors, half, 0),
                              checkpoint_file::Remarks({.info = contents.info}),
                              overwrite ? Replaces::anything : Replaces::nothing, nullptr);
  std::size_t written = 0;
  for (const auto& dataset : Hdf5Reader(path).datasets())
    written += dataset.name.starts_with("parameters/") || dataset.name.starts_with("buffers/") ? 1U : 0U;
  require(written == names.size(), "[checkpoint] {} has {} of {} tensors", path.string(), written, names.size());
}

}  // namespace mpigrad
