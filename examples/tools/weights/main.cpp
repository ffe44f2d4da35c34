// Weights in files: lists their contents, converts them to and from other formats, and compares two files.
//
//   build/examples/weights list run/weights.h5
//   build/examples/weights convert run/weights.h5 weights.safetensors             # with PyTorch's names and order of dimensions
//   build/examples/weights convert resnet50.safetensors weights.h5 --like run/weights.h5
//   build/examples/weights compare run/weights.h5 weights.safetensors

#include "comm/launch.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "examples/tools/weights/names.h"
#include "examples/tools/weights/npz.h"
#include "examples/tools/weights/safetensors.h"
#include "framework/base/printable.h"
#include "models/train/checkpoint/checkpoint.h"
#include "models/trainer/tool/command_line.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad::weights {
namespace {

struct Options {
  std::string first, second, like, type;
  double tolerance = 0;
  bool half = false, overwrite = false, partial = false, json = false;
};

bool is_safetensors(const std::string& path) { return path.ends_with(".safetensors"); }
bool is_npz(const std::string& path) { return path.ends_with(".npz"); }
// Files of other libraries, with PyTorch's names and order of dimensions.
bool is_theirs(const std::string& path) { return is_safetensors(path) || is_npz(path); }
bool is_checkpoint(const std::string& path) { return path.ends_with(".h5") || path.ends_with(".hdf5"); }

constexpr const char* note_prefix = "mpigrad.note.";

TensorFile read_theirs(const std::string& path) { return is_npz(path) ? read_npz(path) : read_safetensors(path); }

// The tensors of a file; those of a checkpoint with our names or PyTorch's.
std::vector<NamedTensor> tensors_of(const std::string& path, bool as_pytorch) {
  if (is_theirs(path)) return read_theirs(path).tensors;
  const auto contents = read_weights(path);
  if (!as_pytorch) return contents.tensors;
  std::vector<NamedTensor> result;
  const auto pairs = pytorch_names(contents.tensors);
  for (std::size_t i = 0; i < pairs.size(); ++i)
    result.push_back({pairs[i].theirs, to_pytorch(pairs[i], contents.tensors[i].value)});
  return result;
}

void require_known(const std::string& path) {
  if (!is_theirs(path) && !is_checkpoint(path))
    throw tool::UsageError(fmt::format("{} is not a .h5, .safetensors or .npz file", path));
}

// Error: a finite number that would become infinite.
Tensor rounded(const Tensor& x, DType type, const std::string& name) {
  const Untaped scope;
  auto result = cast(x, type);
  if (type == x.dtype() || size_of(type) > size_of(x.dtype())) return result;
  const auto before = x.to_vector(), after = result.to_vector();
  for (std::size_t i = 0; i < before.size(); ++i)
    require(std::isfinite(after[i]) || !std::isfinite(before[i]), "[weights] '{}' holds {}, which {} cannot", printable(name),
            before[i], name_of(type));
  return result;
}

Tensor converted(const NamedTensor& tensor, const std::string& type) {
  if (type.empty() || !is_floating(tensor.value.dtype())) return tensor.value;
  return rounded(tensor.value,
                 type == "float16"    ? DType::float16
                 : type == "bfloat16" ? DType::bfloat16
                 : type == "float64"  ? DType::float64
                                      : DType::float32,
                 tensor.name);
}

int list(const Options& o) {
  require_known(o.first);
  nlohmann::ordered_json document = nlohmann::ordered_json::array();
  std::int64_t elements = 0;
  std::map<std::string, std::string> theirs;
  if (is_checkpoint(o.first))
    for (const auto& pair : pytorch_names(read_weights(o.first).tensors)) theirs[pair.ours] = pair.theirs;
  for (const auto& [name, value] : tensors_of(o.first, false)) {
    elements += value.elements();
    if (o.json) {
      document.push_back({{"name", name},
                          {"type", name_of(value.dtype())},
                          {"shape", std::vector<std::int64_t>(value.shape().begin(), value.shape().end())}});
      if (theirs.contains(name)) document.back()["pytorch"] = theirs[name];
    } else {
      fmt::print("{:<52} {:<9} {:<24} {}\n", printable(name), name_of(value.dtype()), fmt::format("{}", value.shape()),
                 theirs.contains(name) ? theirs[name] : "");
    }
  }
  if (o.json) fmt::print("{}\n", tool::to_text(document));
  else fmt::print("{} elements\n", elements);
  return 0;
}

void to_theirs(const Options& o) {
  TensorFile file;
  file.metadata["format"] = "pt";
  if (is_checkpoint(o.first)) {
    const auto info = read_checkpoint_info(o.first);
    file.metadata["mpigrad.epoch"] = std::to_string(info.epoch), file.metadata["mpigrad.step"] = std::to_string(info.step);
    for (const auto& [name, text] : info.notes) file.metadata[note_prefix + name] = text;
  } else {
    file.metadata = read_theirs(o.first).metadata;
    file.metadata.emplace("format", "pt");
  }
  for (const auto& tensor : tensors_of(o.first, true)) file.tensors.push_back({tensor.name, converted(tensor, o.type)});
  is_npz(o.second) ? write_npz(o.second, file, o.overwrite) : write_safetensors(o.second, file, o.overwrite);
}

void to_checkpoint(const Options& o) {
  if (!is_theirs(o.first)) {
    auto contents = read_weights(o.first);
    for (auto& tensor : contents.tensors) tensor.value = converted(tensor, o.type);
    return write_weights(o.second, contents, o.half, o.overwrite);
  }
  if (o.like.empty()) throw tool::UsageError("a new .h5 file needs --like FILE, a .h5 file of the network, for names and notes");
  auto contents = read_weights(o.like);
  const auto file = read_theirs(o.first);
  std::map<std::string, Tensor> theirs;
  for (const auto& [name, value] : file.tensors) theirs[name] = value;
  const auto pairs = pytorch_names(contents.tensors);
  std::size_t taken = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    auto& ours = contents.tensors[i].value;
    const auto found = theirs.find(pairs[i].theirs);
    if (found == theirs.end() && o.partial) {
      fmt::print("left as in {}: {}\n", o.like, pairs[i].ours);
      continue;
    }
    require(found != theirs.end(), "[weights] {} has no '{}', needed for {}; --partial leaves it as in {}", o.first,
            pairs[i].theirs, pairs[i].ours, o.like);
    ours = rounded(from_pytorch(pairs[i], found->second, ours.shape()), ours.dtype(), pairs[i].theirs);
    theirs.erase(found);
    ++taken;
  }
  // Counters of batches are not needed here.
  std::erase_if(theirs, [](const auto& entry) { return entry.first.ends_with("num_batches_tracked"); });
  for (const auto& [name, value] : theirs) fmt::print("not used: {} {}\n", printable(name), value.shape());
  require(o.partial || theirs.empty(), "[weights] {} has {} tensors that {} does not have; --partial leaves them out", o.first,
          theirs.size(), o.like);
  require(taken > 0, "[weights] {} has none of the tensors of {}", o.first, o.like);
  contents.info.epoch = contents.info.step = 0;
  write_weights(o.second, contents, o.half, o.overwrite);
}

int convert(const Options& o) {
  require_known(o.first), require_known(o.second);
  if (!o.like.empty() && (!is_checkpoint(o.like) || !is_theirs(o.first) || !is_checkpoint(o.second)))
    throw tool::UsageError("--like is a .h5 file, and is used only to convert a .safetensors or .npz file to .h5");
  if (is_npz(o.second) && !o.type.empty() && o.type != "float32" && o.type != "float64")
    throw tool::UsageError(fmt::format("--type {}: a .npz file has float32 or float64", o.type));
  if (o.half && !is_checkpoint(o.second)) throw tool::UsageError("--half is for .h5 files; use --type float16 for other formats");
  if (is_theirs(o.second)) to_theirs(o);
  else to_checkpoint(o);
  fmt::print("written to {}\n", o.second);
  return 0;
}

int compare(const Options& o) {
  require_known(o.first), require_known(o.second);
  // If one file has PyTorch's names, both are compared under those names.
  const bool as_pytorch = is_theirs(o.first) || is_theirs(o.second);
  std::map<std::string, Tensor> others;
  for (const auto& [name, value] : tensors_of(o.second, as_pytorch)) others[name] = value;
  double largest = 0;
  std::size_t missing = 0, differing = 0, same = 0;
  for (const auto& [name, value] : tensors_of(o.first, as_pytorch)) {
    const auto found = others.find(name);
    if (found == others.end()) {
      ++missing;
      fmt::print("{:<52} only in {}\n", printable(name), o.first);
      continue;
    }
    if (found->second.shape() != value.shape()) {
      ++differing;
      fmt::print("{:<52} {} and {}\n", printable(name), value.shape(), found->second.shape());
    } else {
      const auto a = value.to_vector(), b = found->second.to_vector();
      double apart = 0;
      for (std::size_t i = 0; i < a.size(); ++i)
        if (!(a[i] == b[i]) && !(std::isnan(a[i]) && std::isnan(b[i])))
          apart = std::isnan(a[i] - b[i]) ? std::numeric_limits<double>::infinity() : std::max(apart, std::abs(a[i] - b[i]));
      largest = std::max(largest, apart);
      if (apart > o.tolerance) ++differing, fmt::print("{:<52} apart by at most {:.6g}\n", printable(name), apart);
      else ++same;
    }
    others.erase(found);
  }
  for (const auto& [name, value] : others) {
    ++missing;
    fmt::print("{:<52} only in {}\n", printable(name), o.second);
  }
  fmt::print("{} tensors agree, {} differ, {} are in one file only; the largest difference is {:.6g}\n", same, differing, missing,
             largest);
  return differing + missing == 0 ? 0 : 1;
}

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  CLI::App app("Weights in files: checkpoints (.h5), and safetensors and .npz with PyTorch's names and order of dimensions.",
               "weights");
  app.require_subcommand(1);
  Options o;
  auto* list_command = app.add_subcommand("list", "names, types and shapes, and PyTorch's names");
  list_command->add_option("FILE", o.first, ".h5, .safetensors or .npz")->required();
  list_command->add_flag("--json", o.json, "one JSON document");
  auto* convert_command = app.add_subcommand("convert", "convert from one format to another");
  convert_command->add_option("FROM", o.first, ".h5, .safetensors or .npz")->required();
  convert_command->add_option("TO", o.second, ".safetensors, .npz or .h5")->required();
  convert_command->add_option("--like", o.like, "a .h5 file of the network, whose names, shapes and notes are taken");
  convert_command->add_flag("--partial", o.partial,
                            "keeps missing tensors as in --like, and drops tensors that --like does not have");
  convert_command
      ->add_option("--type", o.type, "type of floating-point numbers: float64, float32, float16 or bfloat16 (default: unchanged)")
      ->check(CLI::IsMember({"float64", "float32", "float16", "bfloat16"}));
  convert_command->add_flag("--half", o.half, "rounds to float16 in a .h5 file");
  convert_command->add_flag("--overwrite", o.overwrite, "replaces TO");
  auto* compare_command = app.add_subcommand("compare", "largest differences; exit code 1 if there are any");
  compare_command->add_option("FIRST", o.first, ".h5, .safetensors or .npz")->required();
  compare_command->add_option("SECOND", o.second, ".h5, .safetensors or .npz")->required();
  compare_command->add_option("--tolerance", o.tolerance, "largest difference that is ignored")
      ->check(tool::number_from(0))
      ->capture_default_str();
  if (const int code = tool::parse(app, argc, argv, *transport); code >= 0) return code;
  return tool::finish(app, *transport, [&] {
    std::int64_t code = 0;  // only one rank works
    tool::together(*transport, [&] {
      if (transport->rank() != 0) return;
      code = *list_command ? list(o) : *convert_command ? convert(o) : compare(o);
    });
    transport->bcast(&code, 1, DType::int64, 0);
    return static_cast<int>(code);
  });
}

}  // namespace
}  // namespace mpigrad::weights

int main(int argc, char** argv) {
  return mpigrad::launch(argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) {
    return mpigrad::weights::run(transport, argc, argv);
  });
}
