#include "framework/optim/optimizer_state.h"

#include <map>
#include <memory>
#include <string>

#include "framework/op.h"
#include "framework/tensor/device.h"

namespace mpigrad::detail {

std::vector<Tensor> state_arena(const Parameters& parameters) {
  constexpr std::int64_t alignment = 64;
  const auto rounded = [](std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; };
  std::map<DType, std::int64_t> bytes;
  for (std::size_t i = 0; i < parameters.size(); ++i) bytes[parameters[i].value.dtype()] += rounded(parameters[i].value.bytes());
  std::map<DType, std::shared_ptr<Storage>> arenas;
  std::map<DType, std::int64_t> offsets;
  std::vector<Tensor> result;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& value = parameters[i].value;
    auto& arena = arenas[value.dtype()];
    if (!arena) {
      arena = std::make_shared<Storage>(bytes[value.dtype()], value.device());
      detail::zero_bytes(value.device(), arena->data(), arena->bytes());
    }
    auto& offset = offsets[value.dtype()];
    Tensor part(value.type(), arena, offset);
    offset += rounded(value.bytes());
    result.push_back(constant(part));
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
