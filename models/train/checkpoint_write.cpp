#include <bit>
#include <cmath>
#include <optional>

#include "comm/spatial/same_parameters.h"
#include "framework/activity.h"
#include "framework/joined.h"
#include "framework/tensor/content_hash.h"
#include "models/nn/whole_copy.h"
#include "models/train/checkpoint_file.h"
#include "ops/elementwise.h"

namespace mpigrad {
namespace checkpoint_file {
namespace {

std::string text_of(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

// What a file of float16 will give back.
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
  for (const auto& [name, value] : net.buffers()) list.push_back({"buffers/" + name, value});
  return list;
}

void append(std::vector<NamedTensor>& list, const std::string& group, const std::vector<NamedTensor>& more) {
  for (const auto& tensor : more) list.push_back({group + "/" + tensor.name, tensor.value});
}

std::vector<NamedTensor> tensors_of(nn::Module& net, const SaveOptions& options) {
  auto tensors = network_tensors(net);
  if (options.optimizer) append(tensors, "optimizer", options.optimizer->state());
  if (options.averages) append(tensors, "averages", options.averages->state());
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

void Writer::add(const std::string& name, const Tensor& value) {
  require(value.device() != DeviceKind::dry, "[checkpoint] {} is on the dry device: {}", name, value);
  auto on_host = value.device() == DeviceKind::cuda ? detail::copied(value, DeviceKind::cpu) : value;
  const bool half = half_ && is_floating(value.dtype());
  if (half) on_host = rounded(name, on_host);
  const std::vector<std::int64_t> begin(static_cast<std::size_t>(value.rank()), 0);
  file_.create(name, value.shape(), half ? DType::float16 : value.dtype());
  file_.write_box(name, begin, value.shape().span(), value.dtype(), on_host.raw());
  const auto checksum = checksum_of(value.dtype(), value.shape(), on_host.raw());
  file_.attribute(name, checksum_name, checksum);
  seal_.add(name, checksum);
}

void Writer::finish(const Remarks& remarks) {
  if (!remarks.notes.empty()) file_.write_strings(notes_name, remarks.notes), seal_.add_notes(remarks.notes);
  file_.attribute("/", "format", std::string(format_name));
  for (const auto& [name, value] : remarks.numbers)
    std::visit(
        [&, name = name](auto number) {
          file_.attribute("/", name, number);
          seal_.add(name, static_cast<double>(number));
        },
        value);
  file_.attribute("/", checksum_name, seal_.text());
  file_.commit();
}

void throw_everywhere(const Communicator& world, std::string error) {
  auto length = static_cast<std::int64_t>(error.size());
  world.transport().bcast(&length, 1, DType::int64, 0);
  if (length == 0) return;
  error.resize(static_cast<std::size_t>(length));
  world.transport().bcast(error.data(), length, DType::uint8, 0);
  throw Error(error);
}

}  // namespace checkpoint_file

void save_checkpoint(const std::filesystem::path& path, nn::Module& net, const Communicator& world, const SaveOptions& options) {
  const detail::UnhurriedPhase phase;
  require_same_parameters(fmt::format("[checkpoint] {} is not written", path.string()), net.parameters(), world.transport());
  const auto tensors = checkpoint_file::tensors_of(net, options);
  std::string error;
  std::optional<checkpoint_file::Writer> writer;
  const auto on_first = [&](const auto& f) {
    if (world.rank() != 0 || !error.empty()) return;
    try {
      f();
    } catch (const std::exception& exception) {
      error = exception.what();
      writer.reset();
    }
  };
  std::optional<checkpoint_file::Remarks> remarks;
  on_first([&] { remarks.emplace(options), writer.emplace(path, options.half, options.overwrite); });
  // Ranks hand over blocks also where the first can write no more: they do not know.
  for (const auto& [name, value] : tensors) {
    const auto whole = nn::whole_value(value);
    on_first([&] { writer->add(name, whole); });
  }
  on_first([&] { writer->finish(*remarks); });
  checkpoint_file::throw_everywhere(world, std::move(error));
}

void write_weights(const std::filesystem::path& path, const CheckpointTensors& contents, bool half, bool overwrite) {
  const checkpoint_file::Remarks remarks({.info = contents.info});
  checkpoint_file::Writer writer(path, half, overwrite);
  for (const auto& [name, value] : contents.tensors) {
    require(name.starts_with("parameters/") || name.starts_with("buffers/"),
            "[checkpoint] weights are parameters/NAME or buffers/NAME, not {}", name);
    writer.add(name, value);
  }
  writer.finish(remarks);
}

}  // namespace mpigrad
