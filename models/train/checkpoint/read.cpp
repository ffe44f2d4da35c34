#include "models/train/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "comm/hdf5/hdf5_file.h"
#include "comm/launch.h"
#include "framework/base/new_file.h"
#include "framework/base/printable.h"
#include "framework/cuda/cuda.h"
#include "framework/engine/activity.h"
#include "framework/tensor/tensor_name.h"
#include "models/train/checkpoint/file.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

using namespace checkpoint_file;

bool in_blocks(const Tensor& x) { return x.layout() && x.layout()->has(Placement::split); }

// Whether a dataset belongs to the checkpoint: the file may contain others.
bool is_tensor(const std::string& name) {
  for (const std::string_view group : {"parameters/", "buffers/", "optimizer/", "averages/"})
    if (name.starts_with(group)) return true;
  return false;
}

// Verifies everything except the elements. Returns false for files of older versions without checksums. Error: damaged.
bool verify_seal(const Hdf5Reader& file, const std::string& format, const std::vector<std::string>& notes) {
  const auto where = file.path().string();
  Seal seal;
  bool any = file.has_attribute("/", checksum_name);
  for (const char* name : number_names)
    if (file.has_attribute("/", name)) seal.add(name, file.number_attribute("/", name));
  for (const auto& dataset : file.datasets()) {
    if (!is_tensor(dataset.name)) continue;
    const bool has = file.has_attribute(dataset.name, checksum_name);
    any = any || has;
    if (format == format_name) require(has, "[checkpoint] {} is damaged: {} has no checksum", where, printable(dataset.name));
    if (has) seal.add(dataset.name, file.text_attribute(dataset.name, checksum_name));
  }
  if (!notes.empty()) seal.add_notes(notes);
  if (format == unverified_format_name && !any) return false;
  require(file.has_attribute("/", checksum_name) && file.text_attribute("/", checksum_name) == seal.text(),
          "[checkpoint] {} is damaged: its numbers, notes or names of tensors are not those that were written (checksum)", where);
  return true;
}

// Prints one line per file and program.
void say_unverified(const std::filesystem::path& path) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(path.string()).second && first_of_launch())
    fmt::print(stderr, "warning: {} was written by a version without checksums: damage cannot be detected\n", path.string());
}

// Includes damaged files that begin like a checkpoint: with the root's header ("OHDR") and the name of the first group.
bool is_checkpoint(const std::filesystem::path& path) {
  try {
    const Hdf5Reader file(path);
    return file.has_attribute("/", "format") && file.text_attribute("/", "format").starts_with(format_prefix);
  } catch (const Error&) {
  }
  std::string start(4096, '\0');
  std::ifstream file(path, std::ios::binary);
  start.resize(static_cast<std::size_t>(file.read(start.data(), 4096).gcount()));
  const auto has = [&](const char* text) { return start.find(text) != std::string::npos; };
  return has("OHDR") && (has("parameters") || has("buffers"));
}

}  // namespace

void require_replaceable(const std::filesystem::path& path) {
  // Links are replaced and not followed; NewFile checks for pipes and the like.
  std::error_code error;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path, error))) return;
  if (std::filesystem::file_size(path, error) == 0 && !error) return;
  if (!is_checkpoint(path))
    throw FileInTheWay(
        fmt::format("[checkpoint] {} is in the way: it is not a checkpoint, and only those are replaced", path.string()));
}

CheckpointInfo checkpoint_file::read_info(const Hdf5Reader& file) {
  const auto format = file.has_attribute("/", "format") ? file.text_attribute("/", "format") : std::string();
  int version = 0;
  if (format.starts_with(format_prefix)) {
    const auto digits = std::string_view(format).substr(format_prefix.size());
    std::from_chars(digits.data(), digits.data() + digits.size(), version);
  }
  require(version <= format_version, "[checkpoint] {} has version {} of the format, and this program reads versions up to {}",
          file.path().string(), version, format_version);
  require(format == format_name || format == unverified_format_name,
          "[checkpoint] {} is an HDF5 file, but not a checkpoint (format '{}')", file.path().string(), format_name);
  const auto notes = file.contains(notes_name) ? file.read_strings(notes_name) : std::vector<std::string>();
  CheckpointInfo info;
  info.verified = verify_seal(file, format, notes);
  if (!info.verified) say_unverified(file.path());
  info.step = static_cast<std::int64_t>(file.number_attribute("/", "step"));
  info.epoch = static_cast<std::int64_t>(file.number_attribute("/", "epoch"));
  if (file.has_attribute("/", "epoch_step")) {
    info.epoch_step = static_cast<std::int64_t>(file.number_attribute("/", "epoch_step"));
    info.epoch_steps = static_cast<std::int64_t>(file.number_attribute("/", "epoch_steps"));
    info.epoch_loss = file.number_attribute("/", "epoch_loss");
    info.epoch_samples = file.number_attribute("/", "epoch_samples");
  }
  info.averages = file.has_attribute("/", "average_updates");
  for (const auto& note : notes) info.notes[note.substr(0, note.find('='))] = note.substr(note.find('=') + 1);
  return info;
}

namespace {

// Error: the file lacks one of these tensors, or its type or shape differs.
void require_tensors(const Hdf5Reader& file, const std::vector<NamedTensor>& tensors) {
  const auto where = file.path().string();
  std::map<std::string, Hdf5Dataset> datasets;
  for (auto& dataset : file.datasets()) datasets.emplace(dataset.name, dataset);
  for (const auto& [name, value] : tensors) {
    const auto found = datasets.find(name);
    require(found != datasets.end(), "[checkpoint] {} has no {}, which is needed: {}", where, name, value);
    const auto& stored = found->second;
    require(fits(stored, value), "[checkpoint] {} in {} is {} {}, the network's is {} {}", name, where, stored.stored,
            stored.shape, name_of(value.dtype()), global_shape(value));
  }
}

// Also an Error: the file has tensors that the network does not have.
void check_tensors(const Hdf5Reader& file, const std::vector<NamedTensor>& tensors) {
  require_tensors(file, tensors);
  std::set<std::string> expected;
  for (const auto& tensor : tensors) expected.insert(tensor.name);
  for (const auto& dataset : file.datasets()) {
    const bool network = dataset.name.starts_with("parameters/") || dataset.name.starts_with("buffers/");
    require(!network || expected.contains(dataset.name), "[checkpoint] {} has {}, which the network does not have",
            file.path().string(), printable(dataset.name));
  }
}

// Replaces names of parameters by those of their averaged weights.
std::vector<NamedTensor> with_averages(std::vector<NamedTensor> tensors) {
  constexpr std::string_view from = "parameters/", to = "averages/average/";
  for (auto& tensor : tensors)
    if (tensor.name.starts_with(from)) tensor.name.replace(0, from.size(), to);
  return tensors;
}

}  // namespace

Tensor checkpoint_file::read_tensor(const Hdf5Reader& file, const NamedTensor& tensor, bool verified) {
  const Tensor read({global_shape(tensor.value), tensor.value.dtype()}, DeviceKind::cpu);
  const auto& shape = read.shape();
  const std::vector<std::int64_t> begin(static_cast<std::size_t>(shape.rank()), 0);
  file.read(tensor.name, begin, shape.span(), read.dtype(), read.raw());
  require(!verified || checksum_of(read.dtype(), shape, read.raw()) == file.text_attribute(tensor.name, checksum_name),
          "[checkpoint] {} is damaged: the elements of {} are not those that were written (checksum)", file.path().string(),
          tensor.name);
  if (!in_blocks(tensor.value)) return read;
  Untaped scope;
  const auto box = tensor.value.layout()->box();
  return slice(constant(read), box.begin, box.end);
}

bool checkpoint_file::fits(const Hdf5Dataset& stored, const Tensor& value) {
  const bool same_type = stored.type == value.dtype() || (stored.stored == "float16" && is_floating(value.dtype()));
  return stored.kind == Hdf5Dataset::Kind::number && stored.shape == global_shape(value) && same_type;
}

void checkpoint_file::give(const Tensor& to, const Tensor& values) {
  if (to.device() == DeviceKind::cuda) cuda::copy_to_device(to.raw(), values.raw(), to.bytes());
  else detail::copy_bytes(to.device(), to.raw(), values.raw(), to.bytes());
}

CheckpointInfo load_checkpoint(const std::filesystem::path& path, nn::Module& net, const LoadOptions& options) {
  const detail::SlowPhase phase;
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
  if (options.averaged && info.averages && file.number_attribute("/", "average_updates") > 0) {
    tensors = with_averages(std::move(tensors));
    require_tensors(file, tensors);
  }
  // Reads everything before any change: a checksum may be wrong.
  std::vector<Tensor> read;
  for (const auto& tensor : tensors) read.push_back(read_tensor(file, tensor, info.verified));

  // The arrays of an optimizer and of averages are filled in place, one tensor after the other.
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
  for (std::size_t i = 0; i < tensors.size(); ++i) give(tensors[i].value, read[i]);
  return info;
}

CheckpointTensors read_weights(const std::filesystem::path& path) {
  const Hdf5Reader file(path);
  CheckpointTensors result{.info = read_info(file)};
  std::vector<std::string> names;
  for (const auto& dataset : file.datasets()) {
    if (!dataset.name.starts_with("parameters/") && !dataset.name.starts_with("buffers/")) continue;
    require(dataset.kind == Hdf5Dataset::Kind::number, "[checkpoint] {} in {} holds no numbers", printable(dataset.name),
            path.string());
    // Rounded tensors have the checksum of the type before rounding.
    const bool half = dataset.stored == "float16";
    const auto read = [&](DType type) {
      return read_tensor(file, {dataset.name, Tensor({dataset.shape, type}, DeviceKind::dry)}, result.info.verified);
    };
    Tensor value;
    try {
      value = read(half ? DType::float32 : dataset.type);
    } catch (const Error&) {
      if (!half) throw;
      value = read(DType::float64);
    }
    result.tensors.push_back({dataset.name, constant(value)}), names.push_back(dataset.name);
  }
  require_tensor_names(names, "[checkpoint] " + path.string());
  std::sort(result.tensors.begin(), result.tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return result;
}

CheckpointInfo read_checkpoint_info(const std::filesystem::path& path) { return read_info(Hdf5Reader(path)); }

}  // namespace mpigrad
