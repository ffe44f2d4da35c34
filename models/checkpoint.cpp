#include "models/checkpoint.h"

#include <set>

#include "comm/hdf5/hdf5_file.h"
#include "framework/cuda/cuda.h"

namespace mpigrad {
namespace {

constexpr const char* format_name = "mpigrad checkpoint 1";

std::vector<NamedTensor> network_tensors(nn::Module& net) {
  std::vector<NamedTensor> list;
  auto& parameters = net.parameters();
  require(parameters.size() > 0, "[checkpoint] the network has no parameters: call build() first");
  for (std::size_t i = 0; i < parameters.size(); ++i) list.push_back({"parameters/" + parameters[i].name, parameters[i].value});
  for (const auto& [name, value] : net.buffers()) list.push_back({"buffers/" + name, value});
  return list;
}

void append(std::vector<NamedTensor>& list, const std::string& group, const std::vector<NamedTensor>& more) {
  for (const auto& tensor : more) list.push_back({group + "/" + tensor.name, tensor.value});
}

// What rank 0 does. Throws.
void write_file(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors, const SaveOptions& options) {
  std::vector<std::string> notes;
  for (const auto& [name, text] : options.info.notes) {
    require(!name.empty() && (name + text).find('\n') == std::string::npos && name.find('=') == std::string::npos,
            "[checkpoint] a note is a name without '=' and a text of one line: '{}'", name);
    notes.push_back(name + "=" + text);
  }
  Hdf5Writer file(path, options.overwrite);
  for (const auto& [name, value] : tensors) {
    require(value.device() != DeviceKind::dry, "[checkpoint] {} is on the dry device: {}", name, value);
    const auto on_host = value.device() == DeviceKind::cuda ? detail::copied(value, DeviceKind::cpu) : value;
    file.write(name, value.shape(), value.dtype(), on_host.raw());
  }
  if (!notes.empty()) file.write_strings("notes", notes);
  file.attribute("/", "format", std::string(format_name));
  file.attribute("/", "step", options.info.step);
  file.attribute("/", "epoch", options.info.epoch);
  if (options.optimizer) file.attribute("/", "optimizer_steps", options.optimizer->steps());
  if (options.averages) file.attribute("/", "average_updates", options.averages->updates());
  if (options.loss_scale) {
    const auto& state = options.loss_scale->state();
    file.attribute("/", "loss_scale", state.value);
    file.attribute("/", "loss_scale_good_steps", state.good_steps);
    file.attribute("/", "loss_scale_skipped", state.skipped);
  }
  file.commit();
}

// Every rank learns what went wrong on rank 0, so that none waits for the others.
void throw_everywhere(const Communicator& world, std::string error) {
  auto length = static_cast<std::int64_t>(error.size());
  world.transport().broadcast(&length, 1, DType::int64, 0);
  if (length == 0) return;
  error.resize(static_cast<std::size_t>(length));
  world.transport().broadcast(error.data(), length, DType::uint8, 0);
  throw Error(error);
}

CheckpointInfo read_info(const Hdf5Reader& file) {
  require(file.has_attribute("/", "format") && file.text_attribute("/", "format") == format_name,
          "[checkpoint] {} is an HDF5 file, but not a checkpoint (format '{}')", file.path().string(), format_name);
  CheckpointInfo info;
  info.step = static_cast<std::int64_t>(file.number_attribute("/", "step"));
  info.epoch = static_cast<std::int64_t>(file.number_attribute("/", "epoch"));
  if (file.contains("notes"))
    for (const auto& note : file.read_strings("notes"))
      info.notes[note.substr(0, note.find('='))] = note.substr(note.find('=') + 1);
  return info;
}

// The file and the network name the same tensors, of the same types.
void check_tensors(const Hdf5Reader& file, const std::vector<NamedTensor>& tensors) {
  const auto where = file.path().string();
  std::set<std::string> expected;
  for (const auto& [name, value] : tensors) {
    expected.insert(name);
    require(file.contains(name), "[checkpoint] {} has no {}, which is needed: {}", where, name, value);
    const auto stored = file.describe(name);
    require(stored.kind == Hdf5Dataset::Kind::number && stored.shape == value.shape() && stored.type == value.dtype(),
            "[checkpoint] {} in {} is {} {}, the network's is {} {}", name, where, stored.stored, stored.shape,
            name_of(value.dtype()), value.shape());
  }
  for (const auto& dataset : file.datasets()) {
    const bool network = dataset.name.starts_with("parameters/") || dataset.name.starts_with("buffers/");
    require(!network || expected.contains(dataset.name), "[checkpoint] {} has {}, which the network does not have", where,
            dataset.name);
  }
}

void read_into(const Hdf5Reader& file, const NamedTensor& tensor) {
  const std::vector<std::int64_t> begin(static_cast<std::size_t>(tensor.value.rank()), 0);
  const auto& value = tensor.value;
  const bool gpu = value.device() == DeviceKind::cuda;
  const auto on_host = gpu ? Tensor(value.type(), DeviceKind::cpu) : value;
  file.read(tensor.name, begin, value.shape().span(), value.dtype(), on_host.raw());
  if (gpu) cuda::copy_to_device(value.raw(), on_host.raw(), value.bytes());
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, nn::Module& net, const Communicator& world, const SaveOptions& options) {
  std::string error;
  if (world.rank() == 0) {
    try {
      auto tensors = network_tensors(net);
      if (options.optimizer) append(tensors, "optimizer", options.optimizer->state());
      if (options.averages) append(tensors, "averages", options.averages->state());
      write_file(path, tensors, options);
    } catch (const std::exception& exception) {
      error = exception.what();
    }
  }
  throw_everywhere(world, std::move(error));
}

CheckpointInfo load_checkpoint(const std::filesystem::path& path, nn::Module& net, const LoadOptions& options) {
  const Hdf5Reader file(path);
  auto info = read_info(file);
  auto tensors = network_tensors(net);
  if (options.optimizer) {
    require(file.has_attribute("/", "optimizer_steps"), "[checkpoint] {} holds no optimizer", path.string());
    append(tensors, "optimizer", options.optimizer->state());
  }
  if (options.averages) {
    require(file.has_attribute("/", "average_updates"), "[checkpoint] {} holds no averaged weights", path.string());
    append(tensors, "averages", options.averages->state());
  }
  check_tensors(file, tensors);

  // The arrays of an optimizer and of averages are filled where they are, one tensor after the other.
  if (options.optimizer)
    options.optimizer->load_state(options.optimizer->state(),
                                  static_cast<std::int64_t>(file.number_attribute("/", "optimizer_steps")));
  if (options.averages)
    options.averages->load_state(options.averages->state(),
                                 static_cast<std::int64_t>(file.number_attribute("/", "average_updates")));
  if (options.loss_scale && file.has_attribute("/", "loss_scale"))
    options.loss_scale->load_state({.value = file.number_attribute("/", "loss_scale"),
                                    .good_steps = static_cast<std::int64_t>(file.number_attribute("/", "loss_scale_good_steps")),
                                    .skipped = static_cast<std::int64_t>(file.number_attribute("/", "loss_scale_skipped"))});
  // Everything fits: from here on only reading can fail.
  for (const auto& tensor : tensors) read_into(file, tensor);
  return info;
}

CheckpointInfo read_checkpoint_info(const std::filesystem::path& path) { return read_info(Hdf5Reader(path)); }

}  // namespace mpigrad
