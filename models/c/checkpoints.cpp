// Checkpoints of tensors that a program names, and of an optimizer. A file has whole tensors, so that any number of ranks reads
// it.

#include <algorithm>
#include <set>

#include "comm/together.h"
#include "framework/tensor/content_hash.h"
#include "framework/tensor/tensor_name.h"
#include "models/c/functions.h"
#include "models/train/checkpoint/file.h"

namespace mpigrad::capi {
namespace {

constexpr const char* optimizer_group = "optimizer: ";  // before the names of its parameters

std::vector<NamedTensor> tensors_of(const std::vector<std::string>& names, const Tensors& x, const NamedOptimizer* optimizer) {
  std::vector<NamedTensor> list;
  require_tensor_names(names, "[checkpoint]");
  std::set<std::string> seen;
  const auto add = [&](const std::string& name, const Tensor& value) {
    require(seen.insert(name).second, "[checkpoint] there are two tensors named {}", name);
    list.push_back({"parameters/" + name, value});
  };
  for (std::size_t i = 0; i < x.size(); ++i) add(names[i], x[i]);
  if (!optimizer) return list;
  const auto& parameters = optimizer->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) add(optimizer_group + parameters[i].name, parameters[i].value);
  checkpoint_file::append(list, "optimizer", optimizer->optimizer->state());
  return list;
}

// Error: other tensors on other ranks, or a tensor without blocks that differs between ranks: the file would have that of rank 0.
void require_same(const std::string& path, const std::vector<NamedTensor>& list, const Communicator& comm) {
  std::string text;
  for (const auto& [name, value] : list) {
    const bool blocks = value.layout() && value.layout()->has(Placement::split);
    text += fmt::format("{} {} {} {:016x}\n", name, mpigrad::name_of(value.dtype()), global_shape(value),
                        blocks ? 0 : content_hash(value.dtype(), value.raw(), value.elements()));
  }
  const auto first = text_of_rank(comm.transport(), text);
  together(comm, [&] {
    const auto place = std::mismatch(text.begin(), text.end(), first.begin(), first.end()).first - text.begin();
    if (text == first) return;
    const auto begin = static_cast<std::size_t>(place) == 0 ? 0 : text.rfind('\n', static_cast<std::size_t>(place) - 1) + 1;
    fail(
        "[checkpoint] {} is not written: rank {} and rank 0 differ in {}; tensor_distribute() makes the blocks of ranks one "
        "tensor",
        path, comm.rank(), text.substr(begin, text.find(' ', begin + std::string("parameters/").size()) - begin));
  });
}

}  // namespace

void write_checkpoint(const std::string& path, const Communicator& comm, const std::vector<std::string>& names, const Tensors& x,
                      const NamedOptimizer* optimizer, int step) {
  const Untaped untaped;
  const auto& transport = comm.shared_transport();
  std::vector<NamedTensor> list;
  together(comm, [&] { list = tensors_of(names, x, optimizer); });
  for (const auto& each : list)
    require(!each.value.layout() || !each.value.layout()->has(Placement::partial), "[checkpoint] {} is a partial sum: {}",
            each.name, each.value);
  require_same(path, list, comm);
  const auto contents = checkpoint_file::contents_of(list, false, comm.rank());
  SaveOptions options{.info = {.step = step}};
  if (optimizer) options.optimizer = optimizer->optimizer.get();
  const checkpoint_file::Remarks remarks(options);
  constexpr auto replaces = checkpoint_file::Replaces::checkpoints;
  if (contents.shared) return checkpoint_file::write_file(path, contents, remarks, replaces, transport);
  together(comm, [&] {
    if (comm.rank() == 0) checkpoint_file::write_file(path, contents, remarks, replaces, nullptr);
  });
}

int read_checkpoint(const std::string& path, const std::vector<std::string>& names, const Tensors& x,
                    const NamedOptimizer* optimizer) {
  const Untaped untaped;
  const Hdf5Reader file(path);
  const auto info = checkpoint_file::read_info(file);
  const auto list = tensors_of(names, x, optimizer);
  require(!optimizer || file.has_attribute("/", "optimizer_steps"), "[checkpoint] {} holds no optimizer", path);
  std::vector<Tensor> read;
  for (const auto& each : list) {
    require(file.contains(each.name), "[checkpoint] {} has no {}, which is needed: {}", path, each.name, each.value);
    const auto stored = file.describe(each.name);
    require(checkpoint_file::fits(stored, each.value), "[checkpoint] {} in {} is {} {}, the tensor is {} {}", each.name, path,
            stored.stored, stored.shape, mpigrad::name_of(each.value.dtype()), global_shape(each.value));
    require(!each.value.storage() || each.value.storage()->writable(), "[checkpoint] {} is to be read into read-only memory: {}",
            each.name, each.value);
    read.push_back(checkpoint_file::read_tensor(file, each, info.verified));
  }
  if (optimizer)
    optimizer->optimizer->load_state(optimizer->optimizer->state(),
                                     static_cast<std::int64_t>(file.number_attribute("/", "optimizer_steps")));
  for (std::size_t i = 0; i < list.size(); ++i) {
    auto to = list[i].value;
    if (to.storage()) to.storage()->note_write();
    checkpoint_file::give(to, read[i]);
  }
  return step_of(path, info);
}

}  // namespace mpigrad::capi
