#include "framework/optim/optimizer_state.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "framework/engine/op.h"
#include "framework/tensor/device.h"

namespace mpigrad::detail {

bool in_blocks(const Tensor& x) { return x.layout() && x.layout()->has(Placement::split); }

std::vector<BlockGroup> block_groups(std::span<const Tensor> tensors) {
  std::vector<BlockGroup> groups(1);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!in_blocks(tensors[i])) {
      groups[0].places.push_back(i);
      continue;
    }
    const auto& layout = *tensors[i].layout();
    std::vector<int> axes;
    for (std::size_t a = 0; a < layout.axes.size(); ++a)
      if (layout.axes[a].placement == Placement::split) axes.push_back(static_cast<int>(a));
    auto found = std::find_if(groups.begin() + 1, groups.end(),
                              [&](const auto& group) { return group.grid == layout.grid && group.axes == axes; });
    if (found == groups.end()) found = groups.insert(found, {layout.grid, axes, {}});
    found->places.push_back(i);
  }
  return groups;
}

void sum_blocks(std::span<const Tensor> tensors, std::span<double> numbers) {
  if (tensors.empty()) return;
  const UseDevice device(DeviceKind::cpu);
  const auto each = numbers.size() / tensors.size();
  for (const auto& group : block_groups(tensors)) {
    if (!group.grid) continue;
    const Tensor mine({Shape{static_cast<std::int64_t>(each * group.places.size())}, DType::float64});
    const auto move = [&](double* block, bool back) {
      for (std::size_t k = 0; k < group.places.size(); ++k) {
        auto* whole = numbers.data() + each * group.places[k];
        if (back) std::copy_n(block + k * each, each, whole);
        else std::copy_n(whole, each, block + k * each);
      }
    };
    move(as<double>(mine.raw()), false);
    const auto sums = group.grid->sum_over(group.axes, mine);
    move(as<double>(sums.raw()), true);
  }
}

UpdateSegment part_of(UpdateSegment segment, DType dtype, std::int64_t begin, std::int64_t count) {
  const auto bytes = begin * size_of(dtype);
  const auto move = [&](auto*& pointer, auto of_bytes) {
    if (pointer) pointer = static_cast<decltype(of_bytes)>(pointer) + bytes;
  };
  move(segment.value, static_cast<std::byte*>(nullptr));
  move(segment.gradient, static_cast<const std::byte*>(nullptr));
  for (auto& state : segment.state) move(state, static_cast<std::byte*>(nullptr));
  segment.count = count;
  return segment;
}

std::vector<Tensor> state_arena(std::span<const Tensor> values) {
  constexpr std::int64_t alignment = 64;
  const auto rounded = [](std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; };
  std::map<DType, std::int64_t> bytes;
  for (const auto& value : values) bytes[value.dtype()] += rounded(value.bytes());
  std::map<DType, std::shared_ptr<Storage>> arenas;
  std::map<DType, std::int64_t> offsets;
  std::vector<Tensor> result;
  for (const auto& value : values) {
    auto& arena = arenas[value.dtype()];
    if (!arena) {
      arena = std::make_shared<Storage>(bytes[value.dtype()], value.device());
      detail::zero_bytes(value.device(), arena->data(), arena->bytes());
    }
    auto& offset = offsets[value.dtype()];
    const Tensor part(value.type(), arena, offset);
    offset += rounded(value.bytes());
    result.push_back(constant(part).with_layout(value.layout()));
  }
  return result;
}

void require_packed(const char* what, const Parameters& parameters) {
  require(parameters.size() == 0 || parameters.packed(), "[{}] the parameters are not laid out yet; build the network first",
          what);
}

void copy_named(const char* what, const std::vector<NamedTensor>& to, const std::vector<NamedTensor>& from) {
  std::map<std::string, const Tensor*> by_name;
  for (const auto& item : from) by_name[item.name] = &item.value;
  for (const auto& item : to) {
    const auto found = by_name.find(item.name);
    require(found != by_name.end(), "[{}] the state has no {}", what, item.name);
    require(found->second->type() == item.value.type() && found->second->device() == item.value.device(),
            "[{}] {} is {}, the state has {}", what, item.name, item.value, *found->second);
  }
  require(by_name.size() == to.size(), "[{}] the state has {} tensors, {} are needed", what, by_name.size(), to.size());
  for (const auto& item : to) {
    const auto* source = by_name[item.name];
    copy_bytes(item.value.device(), item.value.raw(), source->raw(), item.value.bytes());
  }
}

}  // namespace mpigrad::detail
