#include "comm/distributed/same_parameters.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <vector>

#include "comm/distributed/grid.h"
#include "comm/transport/watch/watch.h"
#include "comm/transport/watch/watched_transport.h"
#include "framework/optim/step_hook.h"
#include "framework/tensor/content_hash.h"

namespace mpigrad {
namespace {

using List = std::vector<const Parameter*>;

// Hash of name, type, shape and elements.
std::uint64_t hash_of(const Parameter& parameter) {
  const auto& value = parameter.value;
  std::uint64_t hash = content_hash(fmt::format("{} {} {}", parameter.name, name_of(value.dtype()), value.shape()));
  if (!value.raw()) return hash;  // dry device: no elements
  const auto host = value.device() == DeviceKind::cuda ? mpigrad::detail::copied(value, DeviceKind::cpu) : value;
  return hash + content_hash(value.dtype(), host.raw(), value.elements());
}

std::vector<std::uint64_t> of_all(const std::vector<std::uint64_t>& mine, Transport& transport) {
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(transport.size()));
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(transport.size()), static_cast<std::int64_t>(mine.size()));
  transport.allgather(mine.data(), all.data(), counts, DType::int64);
  return all;
}

using Groups = std::vector<std::pair<std::uint64_t, std::vector<int>>>;

std::string text_of(const Groups& groups, std::string_view format) {
  std::string text;
  for (const auto& [value, ranks] : groups)
    text += fmt::format("{}{}{} {}", text.empty() ? "" : "; ", detail::plural(ranks), detail::ranges(ranks),
                        fmt::format(fmt::runtime(format), value));
  return text;
}

// Identifies the block of a parameter that this rank has; 0: all of the parameter.
std::uint64_t block_of(const Parameter& parameter) {
  const auto& layout = parameter.value.layout();
  return layout && layout->has(Placement::split) ? content_hash(to_string(layout->box())) | 1 : 0;
}

// The values of ranks that hold the same block, if there are two that differ.
Groups differing_values(const std::vector<std::uint64_t>& values, const std::vector<std::uint64_t>& blocks) {
  for (const auto& [block, ranks] : detail::groups_of(blocks)) {
    auto groups = detail::groups_of(values);
    for (auto& [value, holders] : groups)
      std::erase_if(holders, [&, b = block](int rank) { return blocks[static_cast<std::size_t>(rank)] != b; });
    std::erase_if(groups, [](const auto& group) { return group.second.empty(); });
    if (groups.size() > 1) return groups;
  }
  return {};
}

void compare(std::string_view what, const List& list, Transport& transport) {
  if (transport.size() == 1 || !transport.can_ask()) return;
  std::vector<std::uint64_t> mine, blocks;
  for (const auto* parameter : list) mine.push_back(hash_of(*parameter)), blocks.push_back(block_of(*parameter));
  const auto n = mine.size();
  // Ranks with different blocks have different hashes; then the hashes of all parameters are compared.
  const bool whole = std::all_of(blocks.begin(), blocks.end(), [](auto block) { return block == 0; });
  const auto together = of_all({whole ? content_hash(DType::int64, mine.data(), static_cast<std::int64_t>(n)) : 0}, transport);
  if (whole && detail::groups_of(together).size() == 1) return;

  const auto counts = of_all({n}, transport);
  if (detail::groups_of(counts).size() > 1)
    fail("{}: ranks have different numbers of parameters: {}", what, text_of(detail::groups_of(counts), "{}"));
  const auto all = of_all(mine, transport), all_blocks = of_all(blocks, transport);
  std::size_t differing = 0, first = n;
  std::string of_first;
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<std::uint64_t> values, held;
    for (std::size_t r = 0; r < together.size(); ++r) values.push_back(all[r * n + i]), held.push_back(all_blocks[r * n + i]);
    const auto groups = differing_values(values, held);
    if (groups.empty()) continue;
    if (differing++ == 0) first = i, of_first = text_of(groups, "{:016x}");
  }
  if (differing == 0 && !whole) return;
  if (differing == 0) fail("{}: ranks have the same parameters in different orders", what);
  fail(
      "{}: {} is not the same on all {} ranks, and is the first of {} parameters that are not, of {}; hashes: {}. Gradients of "
      "a parameter that is used without `replicate` or its layout are not summed over the ranks",
      what, list[first]->name, transport.size(), differing, n, of_first);
}

// ---- comparison after optimizer steps

struct Noted {
  std::weak_ptr<Transport> over;
  std::int64_t at = 0;  // number of steps of this thread
};
// The notes of the rank that runs on this thread.
struct Notes {
  std::unordered_map<std::uint64_t, Noted> by_tensor;
  std::int64_t steps = 0;
};
thread_local Notes notes;

std::shared_ptr<Transport> noted(const Parameter& parameter) {
  const auto found = notes.by_tensor.find(parameter.value.id());
  return found == notes.by_tensor.end() ? nullptr : found->second.over.lock();
}

// The ranks of the parameter's grid that hold the same block; null for a parameter without a layout, or if the check is off on
// that grid.
std::shared_ptr<Transport> by_layout(const Parameter& parameter) {
  const auto& layout = parameter.value.layout();
  if (!layout || dynamic_cast<const Grid*>(layout->grid.get()) == nullptr) return nullptr;
  if (detail::same_every(grid_of(*layout).world().transport()) == 0) return nullptr;
  std::vector<int> axes;
  for (int a = 0; a < layout->grid->axes(); ++a)
    if (layout->axes[static_cast<std::size_t>(a)].placement == Placement::replicated) axes.push_back(a);
  return grid_of(*layout).along(axes).shared_transport();
}

// The check MPIGRAD_CHECKS=same=K, called after every step of an optimizer: after every K-th step it compares each parameter over
// the ranks that must hold the same values. For a parameter with a layout these are the ranks of its grid with the same block;
// for one without a layout the ranks over which it was replicated since the last steps; for one that was not replicated the
// largest set of ranks over which another parameter of the list was. A list without any replicated parameter belongs to one rank
// and is not compared. All ranks over which a parameter is compared must make the step.
void compare_after_step(const Parameters& parameters, std::int64_t steps) {
  ++notes.steps;
  std::vector<std::shared_ptr<Transport>> over;
  std::shared_ptr<Transport> most;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& parameter = parameters[i];
    over.push_back(parameter.value.layout() ? by_layout(parameter) : noted(parameter));
    if (over.back() && (!most || over.back()->size() > most->size())) most = over.back();
  }
  // Tensors that are not parameters are replicated, too, and their notes are never used: delete old notes.
  constexpr std::int64_t forgotten = 1000;
  if (notes.steps % forgotten == 0)
    std::erase_if(notes.by_tensor, [](const auto& each) { return each.second.at + forgotten < notes.steps; });
  std::vector<std::pair<Transport*, List>> groups;  // in the order of the parameters: the same on all ranks
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto* transport = over[i] ? over[i].get() : parameters[i].value.layout() ? nullptr : most.get();
    if (!transport) continue;
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& each) { return each.first == transport; });
    if (found == groups.end()) groups.push_back({transport, {&parameters[i]}});
    else found->second.push_back(&parameters[i]);
  }
  for (const auto& [transport, list] : groups)
    if (const int every = detail::same_every(*transport); every > 0 && steps % every == 0)
      compare(fmt::format("[checks] after step {} of the optimizer", steps), list, *transport);
}

// framework/ does not depend on comm/; it calls the hook that is installed here before main().
[[maybe_unused]] const bool called_after_steps = (set_step_hook(compare_after_step), true);

}  // namespace

void require_same_parameters(std::string_view what, const Parameters& parameters, Transport& transport) {
  List list;
  for (std::size_t i = 0; i < parameters.size(); ++i) list.push_back(&parameters[i]);
  compare(what, list, transport);
}

void detail::note_replicated(const Tensor& x, const Communicator& comm) {
  if (same_every(comm.transport()) == 0) return;
  auto& slot = notes.by_tensor[x.id()];
  if (const auto before = slot.over.lock(); !before || before->size() < comm.size()) slot.over = comm.shared_transport();
  slot.at = notes.steps;
}

}  // namespace mpigrad
